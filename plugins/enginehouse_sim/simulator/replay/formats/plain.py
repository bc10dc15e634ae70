"""The plain format: one row per request, as CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enginehouse_sim.simulator.replay.trace import TraceRequest


class Plain:
    """Arrival in seconds, lengths in tokens, optional prefix ids (in CSV separated by spaces)."""

    name = "plain"
    wants = "arrival, input_length, output_length and perhaps prefix_ids, prefix_tokens"

    def fits(self, row: Mapping[str, Any]) -> bool:
        return {"arrival", "input_length", "output_length"} <= row.keys()

    def request(self, row: Mapping[str, Any]) -> TraceRequest:
        return TraceRequest(
            arrival=float(row["arrival"]),
            input_length=int(row["input_length"]),
            output_length=int(row["output_length"]),
            prefix_ids=_ids(row.get("prefix_ids") or ()),
            prefix_tokens=int(row.get("prefix_tokens") or 512),
        )


def _ids(value: str | Sequence[Any]) -> Sequence[int]:
    return tuple(int(each) for each in (value.split() if isinstance(value, str) else value))
