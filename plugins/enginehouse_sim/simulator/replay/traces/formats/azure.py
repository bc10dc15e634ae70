"""The Azure LLM inference traces, 2023 and 2024 (https://github.com/Azure/AzurePublicDataset)."""

from __future__ import annotations

import re
from datetime import datetime, timezone

from enginehouse_sim.simulator.replay.traces.formats.row import Format, Row, length, text
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest

_FRACTION = re.compile(r"\.(\d+)")


class Azure(Format):
    """CSV with a timestamp and two lengths. The timestamps have seven decimal places."""

    name = "azure"
    wants = "TIMESTAMP, ContextTokens, GeneratedTokens"
    units = "dates"
    needs = frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"})

    def request(self, row: Row) -> TraceRequest:
        return TraceRequest(
            arrival=_seconds(text(row, "TIMESTAMP")),
            input_length=length(row, "ContextTokens"),
            output_length=length(row, "GeneratedTokens"),
        )


def _seconds(date: str) -> float:
    """Seconds since the epoch; a time without a zone is UTC. Raises ``ValueError``."""
    try:
        whole = datetime.fromisoformat(_FRACTION.sub("", date).replace("Z", "+00:00"))
    except ValueError:
        raise ValueError(f"TIMESTAMP is {date!r}, not a date") from None
    fraction = _FRACTION.search(date)
    if whole.tzinfo is None:
        whole = whole.replace(tzinfo=timezone.utc)
    return whole.timestamp() + (float(f"0.{fraction[1]}") if fraction else 0.0)
