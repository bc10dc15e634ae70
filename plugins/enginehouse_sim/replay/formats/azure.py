"""The Azure LLM inference traces, 2023 and 2024 (https://github.com/Azure/AzurePublicDataset)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from enginehouse_sim.replay.trace import TraceRequest

_FRACTION = re.compile(r"\.(\d+)")


class Azure:
    """CSV with a time of the day and two lengths; the times have seven digits behind the point."""

    name = "Azure"
    wants = "TIMESTAMP, ContextTokens, GeneratedTokens"

    def fits(self, row: Mapping[str, Any]) -> bool:
        """Whether it has the three fields."""
        return {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= row.keys()

    def request(self, row: Mapping[str, Any]) -> TraceRequest:
        """The request."""
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
