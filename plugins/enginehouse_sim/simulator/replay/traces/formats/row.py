"""The interface of a trace format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from enginehouse_sim.simulator.replay.traces.trace import TraceRequest

Row = Mapping[str, Any]


class Format(Protocol):
    """Reads rows with certain fields. ``wants`` names them, and ``units`` their units, in error messages."""

    name: str
    wants: str
    units: str

    def fits(self, row: Row) -> bool:
        """Whether the row has the fields of this format."""

    def doubt(self, rows: Sequence[Row]) -> str:
        """Why rows with these fields may have other units; empty if there is no reason."""

    def request(self, row: Row) -> TraceRequest:
        """Convert a row. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""


def doubt_blocks(rows: Sequence[Row], tokens: int) -> str:
    """Why the ``hash_ids`` of ``rows`` may not stand for ``tokens`` tokens each; empty if there is no reason."""
    for length, ids in _blocks(rows):
        if abs(-(-length // tokens) - ids) > 1:
            return f"{ids} hash_ids for {length} tokens are about {length / ids:.0f} tokens each"
    return ""


def _blocks(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """The length and the number of hash ids of each row that has both."""
    for row in rows:
        length, ids = row.get("input_length"), row.get("hash_ids")
        if isinstance(length, int) and isinstance(ids, list) and ids:
            yield length, len(ids)
