"""What a format is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from enginehouse_sim.replay.trace import TraceRequest


class Format(Protocol):
    """Reads rows with certain fields. ``wants`` names them for people."""

    name: str
    wants: str

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether the row has the fields of this format."""

    def request(self, row: Mapping[str, Any]) -> TraceRequest:
        """The request. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
