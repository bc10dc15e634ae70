"""The Mooncake traces (https://github.com/kvcache-ai/Mooncake)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from enginehouse_sim.simulator.replay.trace import TraceRequest


class Mooncake:
    """JSON lines with milliseconds, two lengths, and a hash id for each 512 tokens of the prompt."""

    name = "Mooncake"
    wants = "timestamp, input_length, output_length, hash_ids"

    def fits(self, row: Mapping[str, Any]) -> bool:
        return {"timestamp", "input_length", "output_length", "hash_ids"} <= row.keys()

    def request(self, row: Mapping[str, Any]) -> TraceRequest:
        return TraceRequest(
            arrival=float(row["timestamp"]) / 1000,
            input_length=int(row["input_length"]),
            output_length=int(row["output_length"]),
            prefix_ids=tuple(int(each) for each in row["hash_ids"]),
            prefix_tokens=512,
        )
