"""After any sequence of operations: no block lost, none held twice that is not shared, nothing found that is not there.

The model knows tokens instead of hashes, a list instead of the pool's order, and counts holders from the block tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from enginehouse_sim.options import SchedulerConstants
from enginehouse_sim.simulator.core.offloading import HostTier, KvMove
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.block_pool import BlockHasher
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.steps.costs import KvShape, KvTransfer
from tests.support.asked import new_state
from tests.support.host_restore import begin_restore, finish_restore

SIZE, USABLE, HOST, LONGEST = 2, 9, 6, 14
Content = tuple[str | None, tuple[int, ...]]
PROMPTS = st.tuples(st.integers(0, 4), st.integers(0, 4)).map(lambda lengths: [1] * lengths[0] + [2] * lengths[1])
PICK = st.integers(0, 99)


class Blocks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        limits = SchedulerConstants(block_size=SIZE, total_gpu_blocks=USABLE + 1, max_model_len=LONGEST)
        self.manager = KvCacheManager(limits)
        self.host = HostTier(self.manager, BlockHasher(SIZE), HOST, KvTransfer(KvShape()))
        self.number = 0
        self.waiting: list[RequestState] = []
        self.running: list[RequestState] = []
        self.loading: list[tuple[RequestState, KvMove | None]] = []
        self.leaving: list[RequestState] = []
        self.order = list(range(1, USABLE + 1))  # free blocks, the next one first
        self.tables: dict[str, list[int]] = {}
        self.contents: dict[int, Content] = {}  # of the blocks that can be found
        self.on_host: dict[str, set[Content]] = {}

    @rule(prompt=PROMPTS.filter(bool), salt=st.sampled_from([None, "mine"]))
    def arrive(self, prompt: list[int], salt: str | None) -> None:
        self.number += 1
        name = f"r{self.number}"
        self.waiting.append(new_state(request_id=name, prompt_token_ids=prompt, max_tokens=9, cache_salt=salt))

    @precondition(lambda self: self.waiting)
    @rule(pick=PICK, new=st.integers(1, 5), external=st.integers(0, 2), late=st.booleans(), data=st.data())
    def admit(self, pick: int, new: int, external: int, late: bool, data: st.DataObject) -> None:
        request = self.waiting[pick % len(self.waiting)]
        hit = self.manager.get_computed_blocks(request)
        assert list(hit.block_ids) == self.findable(request, hit.block_ids)
        rest = request.num_tokens - hit.num_tokens
        loaded = min(external * SIZE, (rest - 1) // SIZE * SIZE)
        new = min(new, rest - loaded)
        late = late and loaded > 0
        spare, reserve, ahead = (data.draw(st.integers(0, bound)) for bound in (2, 12, 3))
        end = hit.num_tokens + loaded + new
        wanted = max(blocks_for(end + ahead), blocks_for(reserve)) - len(hit.block_ids)
        revived = sum(block in self.order for block in hit.block_ids)
        free = len(self.order)
        blocks = self.manager.allocate_slots(
            request,
            new,
            computed=hit,
            num_external_tokens=loaded,
            num_lookahead_tokens=ahead,
            delay_cache_blocks=late,
            reserve_tokens=reserve,
            leave_free=spare,
        )
        assert (blocks is None) == (wanted + revived + spare > free)
        if blocks is None:
            return
        self.waiting.remove(request)
        self.give(request, hit.block_ids, blocks, blocks_for(end + ahead))
        request.num_computed_tokens = end
        if late:
            self.loading.append((request, None))
        else:
            self.found_from_now_on(request, end)
            self.running.append(request)

    @precondition(lambda self: self.running)
    @rule(
        pick=PICK, chunk=st.integers(1, 4), drafts=st.integers(0, 3), right=st.integers(0, 3), token=st.integers(1, 2)
    )
    def compute(self, pick: int, chunk: int, drafts: int, right: int, token: int) -> None:
        request = self.running[pick % len(self.running)]
        if request.num_computed_tokens == request.num_tokens:
            request.append(token)
        if request.num_tokens + drafts > LONGEST:
            return
        rest = request.num_tokens - request.num_computed_tokens
        is_last = chunk >= rest
        new = rest + drafts if is_last else chunk
        end = request.num_computed_tokens + new
        table = self.tables[request.request_id]
        missing = max(0, blocks_for(end) - len(table))
        blocks = self.manager.allocate_slots(request, new)
        assert (blocks is None) == (missing > len(self.order))
        if blocks is None:
            return
        self.give(request, (), blocks, blocks_for(end))
        holders = self.ref_count()
        assert all(holders[block] == 1 for block in table[request.num_computed_tokens // SIZE : blocks_for(end)])
        self.found_from_now_on(request, end)
        request.num_computed_tokens = end
        if is_last:
            accepted = min(drafts, right)
            request.num_computed_tokens -= drafts - accepted
            for _ in range(accepted):
                request.append(token)

    @precondition(lambda self: self.running)
    @rule(pick=PICK, again=st.booleans())
    def free(self, pick: int, again: bool) -> None:
        request = self.running.pop(pick % len(self.running))
        self.manager.free(request)
        self.take(request)
        if again:
            request.num_computed_tokens = 0
            self.waiting.append(request)

    @precondition(lambda self: self.loading)
    @rule(pick=PICK)
    def loaded(self, pick: int) -> None:
        request, move = self.loading.pop(pick % len(self.loading))
        if move is None:
            self.manager.cache_blocks(request, request.num_computed_tokens)
        else:
            finish_restore(self.manager, self.host, request, move)
            del self.on_host[request.request_id]
            request.num_computed_tokens = move.num_tokens
        self.found_from_now_on(request, request.num_computed_tokens)
        self.running.append(request)

    @precondition(lambda self: self.running)
    @rule(pick=PICK)
    def begin_offload(self, pick: int) -> None:
        request = self.running[pick % len(self.running)]
        whole = min(request.num_computed_tokens, request.num_tokens - 1) // SIZE
        contents = {content(request, index) for index in range(whole)}
        kept = set[Content]().union(*self.on_host.values())
        move = self.host.begin_offload(request)
        assert (move is None) == (len(contents | kept) > HOST)
        if move is None:
            return
        assert (move.num_tokens, move.num_blocks) == (whole * SIZE, len(contents - kept))
        self.on_host[request.request_id] = contents
        self.running.remove(request)
        self.leaving.append(request)

    @precondition(lambda self: self.leaving)
    @rule(pick=PICK)
    def finish_offload(self, pick: int) -> None:
        request = self.leaving.pop(pick % len(self.leaving))
        before = len(self.order)
        freeable = self.manager.freeable_blocks(request.request_id)
        freed = self.host.finish_offload(request)
        self.take(request)
        assert freed == freeable == len(self.order) - before
        request.num_computed_tokens = 0
        self.loading_back(request)

    def loading_back(self, request: RequestState) -> None:
        hit = self.manager.get_computed_blocks(request)
        survive = max(hit.num_tokens, len(self.on_host[request.request_id]) * SIZE)
        revived = sum(block in self.order for block in hit.block_ids)
        move = begin_restore(self.manager, self.host, request, block_size=SIZE, leave_free=1)
        wanted = survive // SIZE - len(hit.block_ids) + revived
        assert (move is None) == (wanted >= len(self.order))
        if move is None:
            self.host.release(request)
            del self.on_host[request.request_id]
            self.waiting.append(request)
            return
        assert (move.num_tokens, move.num_blocks * SIZE) == (survive, survive - hit.num_tokens)
        self.give(request, hit.block_ids, self.manager.get_block_ids(request.request_id), survive // SIZE)
        self.loading.append((request, move))

    @rule()
    def reset(self) -> None:
        assert self.manager.reset_prefix_cache() == (len(self.order) == USABLE)
        if len(self.order) == USABLE:
            self.contents.clear()

    @invariant()
    def blocks_are_conserved_and_holders_are_exact(self) -> None:
        holders = self.ref_count()
        pool = self.manager.pool
        given = [block for block in range(USABLE + 1) if holders[block]]
        assert pool.count_free(given) == 0
        assert pool.count_unshared(given) == sum(holders[block] == 1 for block in given)
        assert self.manager.num_free_blocks == len(self.order) == USABLE - len(holders)
        assert abs(self.manager.usage - len(holders) / USABLE) < 1e-9
        for name, table in self.tables.items():
            assert list(self.manager.get_block_ids(name)) == table

    @invariant()
    def what_is_not_shared_has_one_owner(self) -> None:
        assert all(count == 1 or block in self.contents for block, count in self.ref_count().items())

    @invariant()
    def whatever_is_known_is_found(self) -> None:
        assert self.manager.pool.num_cached == len(set(self.contents.values()))
        for request in self.waiting:
            hit = self.manager.get_computed_blocks(request)
            assert list(hit.block_ids) == self.findable(request, hit.block_ids)

    @invariant()
    def host_memory_is_conserved(self) -> None:
        assert self.host.num_free_blocks == HOST - len(set[Content]().union(*self.on_host.values())) >= 0

    def ref_count(self) -> Counter[int]:
        return Counter(block for table in self.tables.values() for block in table)

    def findable(self, request: RequestState, answer: Sequence[int]) -> list[int]:
        """What should be found: any block with the right content each, for as long as there is one."""
        found: list[int] = []
        for index in range((request.num_tokens - 1) // SIZE):
            right = [block for block, known in self.contents.items() if known == content(request, index)]
            if not right:
                break
            found.append(answer[index] if index < len(answer) and answer[index] in right else right[0])
        return found

    def give(self, request: RequestState, hit: Sequence[int], blocks: Sequence[int], num_blocks: int) -> None:
        """The request holds ``hit``, and as many of the first free blocks as it needs."""
        self.order = [block for block in self.order if block not in hit]
        table = self.tables.setdefault(request.request_id, list(hit))
        count = max(0, num_blocks - len(table))
        new, self.order = self.order[:count], self.order[count:]
        assert list(blocks) == [*hit, *new]
        for block in new:
            self.contents.pop(block, None)
        table.extend(new)

    def take(self, request: RequestState) -> None:
        self.freed(self.tables.pop(request.request_id))

    def freed(self, blocks: Sequence[int]) -> None:
        holders = self.ref_count()
        free = [block for block in reversed(blocks) if not holders[block]]
        uncached = [block for block in free if block not in self.contents]
        self.order = [*uncached, *self.order, *(block for block in free if block in self.contents)]

    def found_from_now_on(self, request: RequestState, end: int) -> None:
        for index in range(min(end, request.num_tokens) // SIZE):
            self.contents[self.tables[request.request_id][index]] = content(request, index)


def blocks_for(num_tokens: int) -> int:
    return -(-min(num_tokens, LONGEST) // SIZE)


def content(request: RequestState, index: int) -> Content:
    return request.asked.cache_salt, tuple(request.all_token_ids[: (index + 1) * SIZE])


TestBlocks = Blocks.TestCase
TestBlocks.settings = settings(max_examples=80, stateful_step_count=40)
