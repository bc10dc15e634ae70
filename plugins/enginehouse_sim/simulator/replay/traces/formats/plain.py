"""The plain format: one row per request, as CSV or JSON lines."""

from __future__ import annotations

from typing import Any

from enginehouse_sim.simulator.replay.traces.formats.row import Format, Row, ids, length, number
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest


class Plain(Format):
    """Arrival in seconds, lengths in tokens; optional prefix ids (in CSV separated by spaces), model, key, stream."""

    name = "plain"
    wants = "arrival (seconds), input_length, output_length and perhaps prefix_ids, prefix_tokens, model, key, stream"
    units = "seconds"
    needs = frozenset({"arrival", "input_length", "output_length"})

    def request(self, row: Row) -> TraceRequest:
        return TraceRequest(
            arrival=number(row, "arrival"),
            input_length=length(row, "input_length"),
            output_length=length(row, "output_length"),
            prefix_ids=ids(row, "prefix_ids"),
            prefix_tokens=length(row, "prefix_tokens") if row.get("prefix_tokens") else 512,
            model=str(row.get("model") or ""),
            key=str(row.get("key") or ""),
            stream=_flag(row.get("stream")),
        )


def _flag(value: Any) -> bool:
    """``true`` or ``false``, in CSV as text. Absent, it is true."""
    text = "true" if value is None or value == "" else str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(f"stream is true or false, not {value!r}")
    return text == "true"
