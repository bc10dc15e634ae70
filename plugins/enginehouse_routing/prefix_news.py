"""What one index of prefixes tells those of other workers."""

from __future__ import annotations

import msgspec


class PrefixNews(msgspec.Struct, frozen=True, array_like=True):
    """A prompt that was sent to an engine, as ``SharedPrefixIndex.note`` keeps it."""

    engine: str
    most: int
    coarse: list[int]
    fine: list[int]
    tail: list[int]
