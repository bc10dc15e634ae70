"""A key that an operator has made at run time, or asks for."""

from __future__ import annotations

from typing import Any

import msgspec

from enginehouse.callers import KeySettings


class KeptKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as the file has it. Times are seconds of the epoch.

    ``settings``: as ``[[auth.keys]]``, without name and secret.
    """

    id: str
    """Part of the secret, by which it is found."""
    salt: str
    hash: str
    settings: dict[str, Any]
    created: float
    last_used: float | None = None


class NewKey(KeySettings, frozen=True, kw_only=True):
    """What an operator asks for: the keys of ``[[auth.keys]]``; the gateway chooses the secret."""

    key: str = ""
