"""The interface of a trace format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from enginehouse_sim.simulator.replay.trace import TraceRequest


class Format(Protocol):
    """Reads rows with certain fields. ``wants`` names them in error messages."""

    name: str
    wants: str

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has the fields of this format."""

    def request(self, row: Mapping[str, Any]) -> TraceRequest:
        """Convert a row. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
