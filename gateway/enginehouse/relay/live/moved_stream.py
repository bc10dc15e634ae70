"""A stream that was moved."""

from __future__ import annotations

from typing import NamedTuple


class MovedStream(NamedTuple):
    """A stream that was moved. ``gap_ms``: how long its client waited for the next event."""

    id: str
    source: str
    destination: str
    gap_ms: float
