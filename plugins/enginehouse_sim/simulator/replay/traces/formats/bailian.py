"""The traces of Alibaba's Bailian (https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon)."""

from __future__ import annotations

from enginehouse_sim.simulator.replay.traces.formats.row import Format, Row, ids, length, number
from enginehouse_sim.simulator.replay.traces.trace import TraceRequest


class Bailian(Format):
    """JSON lines with seconds, two lengths, the turn of a chat, and a hash id for each 16 tokens of the prompt."""

    name = "bailian"
    wants = "chat_id, timestamp, input_length, output_length and perhaps hash_ids"
    units = "seconds, 16 tokens for each hash id"
    needs = frozenset({"chat_id", "timestamp", "input_length", "output_length"})
    block = 16

    def request(self, row: Row) -> TraceRequest:
        return TraceRequest(
            arrival=number(row, "timestamp"),
            input_length=length(row, "input_length"),
            output_length=length(row, "output_length"),
            prefix_ids=ids(row, "hash_ids"),
            prefix_tokens=self.block,
        )
