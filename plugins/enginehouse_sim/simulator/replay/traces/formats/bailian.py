"""The traces of Alibaba's Bailian (https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon)."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.simulator.replay.traces.formats.row import Row, doubt_blocks, ids, length, number
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest

_BLOCK = 16


class Bailian:
    """JSON lines with seconds, two lengths, the turn of a chat, and a hash id for each 16 tokens of the prompt."""

    name = "bailian"
    wants = "chat_id, timestamp, input_length, output_length and perhaps hash_ids"
    units = f"seconds, {_BLOCK} tokens for each hash id"

    def fits(self, row: Row) -> bool:
        return {"chat_id", "timestamp", "input_length", "output_length"} <= row.keys()

    def doubt(self, rows: Sequence[Row]) -> str:
        return doubt_blocks(rows, _BLOCK)

    def request(self, row: Row) -> TraceRequest:
        return TraceRequest(
            arrival=number(row, "timestamp"),
            input_length=length(row, "input_length"),
            output_length=length(row, "output_length"),
            prefix_ids=ids(row, "hash_ids"),
            prefix_tokens=_BLOCK,
        )
