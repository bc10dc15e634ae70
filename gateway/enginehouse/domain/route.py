"""The routing decision and its explanation."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from enginehouse.domain.replica import Candidate


class Reason(str, Enum):
    """Why a request went where it went."""

    MATCH = "match"
    ALIAS = "alias"
    FALLBACK = "fallback"
    RETRY = "retry"


class Route(msgspec.Struct, frozen=True):
    """The decision: the client asked for ``requested``, ``chosen`` serves ``chosen.model``.

    ``attempted`` lists the models tried, in order, the one that serves last.
    """

    requested: str
    chosen: Candidate
    reason: Reason
    attempted: tuple[str, ...]

    @property
    def model(self) -> str:
        """The model name that the engine will see."""
        return self.chosen.model


class Verdict(msgspec.Struct, frozen=True):
    """What a strategy thought of one candidate: its score and the named figures that made it."""

    score: float | None = None
    parts: dict[str, float] = {}


class ExplainedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate in an explanation; ``dropped_by`` names the filter that dropped it and ``why`` its reason."""

    replica: str
    backend: str
    model: str
    score: float | None = None
    parts: dict[str, float] = {}
    dropped_by: str | None = None
    why: str | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """A routing decision taken apart, as ``explain route`` prints it."""

    requested: str
    resolved: str | None
    reason: str | None
    attempted: list[str]
    requirements: dict[str, Any]
    candidates: list[ExplainedCandidate]
    chosen: str | None
    error: dict[str, Any] | None
