"""Waiting requests, and the prefix matches prepared for them while the model runs.

The staging worker's turn is ``prepare``. The scheduler peeks at the head and pops only a request that it placed, so no
request is lost or overtaken. The scheduler matches an unprepared request at its turn, so the worker's pace decides only
which blocks are pinned until then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from itertools import islice

import msgspec

from enginehouse_sim.simulator.domain.constants import SchedulingPolicy
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.computed_blocks import NOTHING_COMPUTED, ComputedBlocks
from enginehouse_sim.simulator.kv.connector import KvConnector
from enginehouse_sim.simulator.scheduler.pinned_blocks import PinnedBlocks
from enginehouse_sim.simulator.scheduler.waiting_queue import WaitingQueue, waiting_queue


class LoadKind(str, Enum):
    """How tokens from outside arrive: not at all, within the step, or between steps."""

    NONE = "none"
    SYNC = "sync"
    ASYNC = "async"


class PreparedDelta(msgspec.Struct, frozen=True):
    """The match of a waiting request: cached blocks, and tokens from outside. Immutable.

    ``num_tokens`` and ``match_version``: the request's length and the connector's version at the time of the match.
    """

    request_id: str
    computed: ComputedBlocks
    num_external_tokens: int
    load_kind: LoadKind
    num_tokens: int
    match_version: int

    @property
    def num_computed_tokens(self) -> int:
        """The tokens that need no computing."""
        return self.computed.num_tokens + self.num_external_tokens


class Staging:
    """All waiting requests, and the prepared deltas of the first ``depth`` of them.

    Requests that hold blocks already, because of a load, come before all others, as in vLLM. Behind a request that
    needs their blocks, they would keep these for ever.

    ``max_pinned_blocks``: the most blocks that deltas keep from eviction.
    """

    def __init__(
        self,
        policy: SchedulingPolicy,
        kv_cache: KvCacheManager,
        connector: KvConnector | None,
        *,
        max_pinned_blocks: int,
        depth: int,
    ) -> None:
        self._queue = waiting_queue(policy)
        self._holding = waiting_queue(policy)
        self._skipped: list[RequestState] = []
        self._kv_cache = kv_cache
        self._connector = connector
        self._depth = depth
        self._deltas: dict[str, PreparedDelta] = {}
        self._pins = PinnedBlocks(kv_cache, max_pinned_blocks)
        self._is_idle = False

    def add(self, request: RequestState) -> None:
        """Add a new request."""
        self._queue.add(request)

    def put_back(self, request: RequestState) -> None:
        """Add a preempted or resumed request, before its equals."""
        self._queue_of(request).put_back(request)

    def remove(self, request_ids: Collection[str]) -> None:
        """Remove requests that finished while waiting."""
        for request_id in request_ids:
            self._drop(request_id)
        self._queue.remove(request_ids)
        self._holding.remove(request_ids)
        self._is_idle = False

    def peek(self) -> RequestState | None:
        """The request at the head."""
        queue = self._holding or self._queue
        return queue.peek() if queue else None

    def pop(self) -> None:
        """Remove the head, which was placed."""
        self._drop((self._holding or self._queue).pop().request_id)
        self._is_idle = False

    def discard_delta(self, request: RequestState) -> None:
        """Drop the delta of a request that still waits, but has the matched blocks in its own table."""
        self._drop(request.request_id)

    def skip(self) -> None:
        """Put the head aside until ``restore_skipped``; the next one is the head."""
        self._skipped.append((self._holding or self._queue).pop())

    def restore_skipped(self) -> None:
        """Return skipped requests to the head, in their order."""
        while self._skipped:
            request = self._skipped.pop()
            self._queue_of(request).put_back(request)

    def prepare(self) -> None:
        """The worker's turn: match the first unmatched requests, in order, while pins are available."""
        if self._is_idle:
            return
        for request in islice(self._queue, self._depth):
            delta = self._deltas.get(request.request_id)
            if delta is not None and self._is_stale(delta, request):
                self._drop(request.request_id)
                delta = None
            if delta is None and request.num_computed_tokens == 0:
                delta = self._match(request, NOTHING_COMPUTED)
                if delta is not None and not self._keep(delta):
                    return

    def delta_for(self, request: RequestState) -> PreparedDelta | None:
        """The match of the request, prepared or made now; ``None`` if the connector cannot tell yet."""
        delta = self._deltas.get(request.request_id)
        if delta is None or self._is_stale(delta, request):
            self._drop(request.request_id)
            return self._match(request, NOTHING_COMPUTED)
        longer = self._kv_cache.get_computed_blocks(request, delta.computed)
        return delta if longer.num_tokens == delta.computed.num_tokens else self._with_external(request, longer)

    def make_room(self, keep: RequestState | None = None) -> bool:
        """Drop all deltas but that of ``keep``. Return whether this unpinned blocks.

        No deltas are prepared until a request leaves the queue.
        """
        self._is_idle = True
        before = self._pins.num_blocks
        self.drop_deltas(keep)
        return self._pins.num_blocks < before

    def drop_deltas(self, keep: RequestState | None = None) -> None:
        """Drop the deltas of all requests but ``keep``."""
        kept = keep.request_id if keep is not None else None
        for request_id in [request_id for request_id in self._deltas if request_id != kept]:
            self._drop(request_id)

    @property
    def num_pinned_blocks(self) -> int:
        return self._pins.num_blocks

    def deltas(self) -> Sequence[PreparedDelta]:
        """The prepared deltas, oldest first."""
        return tuple(self._deltas.values())

    def __len__(self) -> int:
        return len(self._queue) + len(self._holding) + len(self._skipped)

    def __iter__(self) -> Iterator[RequestState]:
        yield from self._skipped
        yield from self._holding
        yield from self._queue

    def holders(self) -> Iterator[RequestState]:
        """The waiting requests that hold blocks."""
        return (request for request in (*self._skipped, *self._holding) if _holds_blocks(request))

    def _queue_of(self, request: RequestState) -> WaitingQueue:
        return self._holding if _holds_blocks(request) else self._queue

    def _match(self, request: RequestState, known: ComputedBlocks) -> PreparedDelta | None:
        return self._with_external(request, self._kv_cache.get_computed_blocks(request, known))

    def _with_external(self, request: RequestState, computed: ComputedBlocks) -> PreparedDelta | None:
        num_external, kind = 0, LoadKind.NONE
        if self._connector is not None:
            match = self._connector.get_num_new_matched_tokens(request, computed.num_tokens)
            if match.num_tokens is None:
                return None
            last_is_computed_here = not match.load_async or request.num_tokens == 1
            num_external = min(match.num_tokens, request.num_tokens - last_is_computed_here - computed.num_tokens)
            if num_external:
                kind = LoadKind.ASYNC if match.load_async else LoadKind.SYNC
        return PreparedDelta(request.request_id, computed, num_external, kind, request.num_tokens, self._version())

    def _is_stale(self, delta: PreparedDelta, request: RequestState) -> bool:
        return delta.num_tokens != request.num_tokens or delta.match_version != self._version()

    def _version(self) -> int:
        return self._connector.match_version if self._connector is not None else 0

    def _keep(self, delta: PreparedDelta) -> bool:
        if not self._pins.pin(delta.computed.block_ids):
            return False
        self._deltas[delta.request_id] = delta
        return True

    def _drop(self, request_id: str) -> None:
        delta = self._deltas.pop(request_id, None)
        if delta is not None:
            self._pins.unpin(delta.computed.block_ids)


def _holds_blocks(request: RequestState) -> bool:
    return request.num_computed_tokens > 0 or request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
