"""Structs of this plugin. They stand apart from compiled modules, whose classes lose their types and docstrings."""

from __future__ import annotations

from typing import Annotated

import msgspec

from enginehouse.settings import RuleSettings, ZoneSettings


class ErrorShareConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``most``: the largest share of bad answers with which an engine still gets requests; ``routing.error_share``."""

    most: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0


class RuleConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``rules``: ``[[routing.rules]]``."""

    rules: list[RuleSettings] = []


class ZoneConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``zones``: ``[zones]``, by name."""

    zones: dict[str, ZoneSettings] = {}


class TierConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``least``: ``routing.least_tier``, by models that clients name, or by patterns."""

    least: dict[str, int] = {}


class SessionIdConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``sources``: ``routing.session``."""

    sources: list[str] = []


class CacheAwareConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``cache_tokens``: the size of one engine's prefix cache, by default what it reports, else 500,000.

    ``priority_s``: the seconds that a worse priority costs. A backend with a worse one is picked when those with a
    better one would answer that much later.
    """

    cache_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    priority_s: Annotated[float, msgspec.Meta(ge=0)] = 1.0


class LearnedMemory(msgspec.Struct, frozen=True):
    """What is kept: what was learned of engines, by backend, and what they have cached, by replica."""

    prefixes: dict[str, tuple[bytes, bytes]]
    rates: dict[str, Annotated[list[float], msgspec.Meta(min_length=12, max_length=12)]] = {}


class PrefixNews(msgspec.Struct, frozen=True, array_like=True):
    """A prompt that was sent to an engine, as ``SharedPrefixIndex.note`` keeps it."""

    engine: str
    most: int
    coarse: list[int]
    fine: list[int]
    tail: list[int]


class Document(msgspec.Struct):
    """A document to rerank that is an object."""

    text: str | None = None
