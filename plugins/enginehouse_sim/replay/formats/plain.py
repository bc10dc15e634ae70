"""The plain format: one row for each request, as CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enginehouse_sim.replay.trace import TraceRequest


class Plain:
    """Arrival in seconds, lengths in tokens, perhaps ids of what prompts begin with (in CSV blanks between)."""

    name = "plain"
    wants = "arrival, input_length, output_length and perhaps prefix_ids, prefix_tokens"

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether it has the three fields."""
        return {"arrival", "input_length", "output_length"} <= row.keys()

    def request(self, row: Mapping[str, Any]) -> TraceRequest:
        """The request."""
        return TraceRequest(
            arrival=float(row["arrival"]),
            input_length=int(row["input_length"]),
            output_length=int(row["output_length"]),
            prefix_ids=_ids(row.get("prefix_ids") or ()),
            prefix_tokens=int(row.get("prefix_tokens") or 512),
        )


def _ids(value: str | Sequence[Any]) -> Sequence[int]:
    return tuple(int(each) for each in (value.split() if isinstance(value, str) else value))
