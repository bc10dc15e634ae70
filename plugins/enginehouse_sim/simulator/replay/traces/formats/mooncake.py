"""The Mooncake traces (https://github.com/kvcache-ai/Mooncake)."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.replay.traces.formats.row import Format, Row, ids, length, number
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest

_MOST_PER_MS = 1.0
_ENOUGH_ROWS = 20


class Mooncake(Format):
    """JSON lines with whole milliseconds, two lengths, and a hash id for each 512 tokens of the prompt."""

    name = "mooncake"
    wants = "timestamp, input_length, output_length, hash_ids"
    units = "whole milliseconds, 512 tokens for each hash id"
    needs = frozenset({"timestamp", "input_length", "output_length", "hash_ids"})
    block = 512

    def fits(self, row: Row) -> bool:
        return super().fits(row) and "chat_id" not in row

    def doubt(self, rows: Sequence[Row]) -> str:
        times = [row["timestamp"] for row in rows if isinstance(row.get("timestamp"), int | float)]
        if any(time % 1 for time in times):
            return f"a timestamp of {next(time for time in times if time % 1)} looks like seconds"
        if len(times) >= _ENOUGH_ROWS and len(times) > _MOST_PER_MS * (max(times) - min(times)):
            return f"{len(times)} requests in {max(times) - min(times)} ms are too many: the timestamps may be seconds"
        return super().doubt(rows)

    def request(self, row: Row) -> TraceRequest:
        return TraceRequest(
            arrival=number(row, "timestamp") / 1000,
            input_length=length(row, "input_length"),
            output_length=length(row, "output_length"),
            prefix_ids=ids(row, "hash_ids"),
            prefix_tokens=self.block,
        )
