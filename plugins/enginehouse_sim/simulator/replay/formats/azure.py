"""The Azure LLM inference traces, 2023 and 2024 (https://github.com/Azure/AzurePublicDataset)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from enginehouse_sim.simulator.replay.trace import TraceRequest

_FRACTION = re.compile(r"\.(\d+)")


class Azure:
    """CSV with a timestamp and two lengths. The timestamps have seven decimal places."""

    name = "Azure"
    wants = "TIMESTAMP, ContextTokens, GeneratedTokens"

    def fits(self, row: Mapping[str, Any]) -> bool:
        return {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= row.keys()

    def request(self, row: Mapping[str, Any]) -> TraceRequest:
        return TraceRequest(
            arrival=_seconds(row["TIMESTAMP"]),
            input_length=int(row["ContextTokens"]),
            output_length=int(row["GeneratedTokens"]),
        )


def _seconds(text: str) -> float:
    """Seconds since the epoch; a time without a zone is UTC."""
    whole = datetime.fromisoformat(_FRACTION.sub("", text).replace("Z", "+00:00"))
    fraction = _FRACTION.search(text)
    if whole.tzinfo is None:
        whole = whole.replace(tzinfo=timezone.utc)
    return whole.timestamp() + (float(f"0.{fraction[1]}") if fraction else 0.0)
