"""A model of the KV cache's content: it proves that blocks are allocated, shared and freed correctly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from zlib import crc32

from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.domain.outputs import PADDING_DRAFT, ModelRunnerOutput, NewRequestData, SchedulerOutput
from enginehouse_sim.simulator.domain.request import CachedRequestData
from enginehouse_sim.simulator.model.runner import ModelRunner


class InconsistentBlocks(Exception):
    """A request reads content that is not its own, or writes where it must not."""


class CachedSequence(NamedTuple):
    """A request as the cache sees it: its tokens, drafts included, its block table, and its ``salt``."""

    request_id: str
    tokens: Sequence[int]
    block_ids: Sequence[int]
    salt: str = ""


class KvMemory:
    """Remembers for each slot which token was computed into it, and after which prefix."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._slots: dict[tuple[int, int], int] = {}

    def write(self, sequence: CachedSequence, start: int, stop: int) -> None:
        """Compute or load the tokens from ``start`` to ``stop``. Raises ``InconsistentBlocks``."""
        self._check_table(sequence, stop)
        marks = _marks(sequence, stop)
        for position in range(start, stop):
            self._slots[self._slot(sequence, position)] = marks[position]

    def read(self, sequence: CachedSequence, stop: int) -> None:
        """Read all tokens before ``stop``, after the step's writes. Raises ``InconsistentBlocks``."""
        marks = _marks(sequence, stop)
        for position in range(stop):
            if self._slots.get(self._slot(sequence, position)) != marks[position]:
                raise InconsistentBlocks(
                    f"{sequence.request_id} reads token {position} in block "
                    f"{sequence.block_ids[position // self._block_size]}, which holds something else"
                )

    def _slot(self, sequence: CachedSequence, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self._block_size)
        return sequence.block_ids[block], offset

    def _check_table(self, sequence: CachedSequence, stop: int) -> None:
        blocks = sequence.block_ids
        if len(blocks) * self._block_size < stop:
            raise InconsistentBlocks(f"{sequence.request_id} has {len(blocks)} blocks for {stop} tokens")
        if len(set(blocks)) != len(blocks) or 0 in blocks:
            raise InconsistentBlocks(f"{sequence.request_id} has block 0, or a block twice: {list(blocks)}")


def _marks(sequence: CachedSequence, stop: int) -> list[int]:
    """For each token a number that stands for the whole prefix up to it."""
    mark = crc32(sequence.salt.encode())
    marks = []
    for token in sequence.tokens[:stop]:
        mark = hash((mark, token))
        marks.append(mark)
    return marks


class CheckedRunner(ModelRunner):
    """A model runner where every block that a request reads must hold what was computed for the same prefix."""

    def __init__(self, settings: CoreSettings, memory: KvMemory) -> None:
        super().__init__(settings)
        self._memory = memory
        self._seen: dict[str, _Seen] = {}

    def execute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        """Execute one step. Raises ``InconsistentBlocks``."""
        reads = []
        for new in output.new_requests:
            self._seen[new.request_id] = _Seen(new)
            reads.append(self._write(output, new))
        for cached in output.cached_requests:
            self._seen[cached.request_id].follow(cached)
            reads.append(self._write(output, cached))
        for sequence, stop in reads:  # requests read blocks that others fill in the same step
            self._memory.read(sequence, stop)
        result = super().execute(output)
        for row, request_id in enumerate(result.req_ids):
            seen = self._seen[request_id]
            seen.tokens += result.sampled_token_ids[row]
            seen.drafted = list(result.spec_token_ids[row]) if result.spec_token_ids else []
        return result

    def _write(self, output: SchedulerOutput, data: NewRequestData | CachedRequestData) -> tuple[CachedSequence, int]:
        seen = self._seen[data.request_id]
        drafts = list(output.scheduled_spec_decode_tokens.get(data.request_id, ()))
        if drafts and drafts[0] == PADDING_DRAFT:
            own = seen.drafted[: len(drafts)]
            drafts = [*own, *drafts[len(own) :]]
        start = min(data.num_computed_tokens, len(seen.tokens) - 1)
        stop = start + output.num_scheduled_tokens[data.request_id]
        sequence = CachedSequence(data.request_id, [*seen.tokens, *drafts], seen.block_ids, seen.salt)
        self._memory.write(sequence, start, stop)
        return sequence, stop


class _Seen:
    """A request as the plans tell it."""

    def __init__(self, data: NewRequestData) -> None:
        self.tokens = [*data.prompt_token_ids, *data.output_token_ids]
        self.block_ids = list(data.block_ids)
        self.drafted: list[int] = []
        self.salt = f"{data.lora or ''}/{data.cache_salt or ''}"

    def follow(self, data: CachedRequestData) -> None:
        if data.resumed_from_preemption:
            self.tokens, self.block_ids, self.drafted = list(data.token_ids), list(data.new_block_ids), []
        else:
            self.block_ids += data.new_block_ids
