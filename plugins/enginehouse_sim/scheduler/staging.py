"""What is found out about waiting requests ahead of their turn, and handed on with them.

The staging worker takes its turns (``prepare``) while the model runs. The scheduler takes requests at the head: it
peeks, and pops only what it placed, so that no request is ever lost or overtaken. A request whose turn comes before the
worker's is matched at that moment, so that the worker's pace decides nothing but what was pinned in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from itertools import islice

import msgspec

from enginehouse_sim.scheduler.interfaces import NOTHING_COMPUTED, ComputedBlocks, KvCacheManager, KvConnector
from enginehouse_sim.scheduler.pins import Pins
from enginehouse_sim.scheduler.request import RequestState
from enginehouse_sim.scheduler.waiting_queue import WaitingQueue


class LoadKind(str, Enum):
    """How what is not computed here arrives: not at all, within the step, or between steps."""

    NONE = "none"
    SYNC = "sync"
    ASYNC = "async"


class PreparedDelta(msgspec.Struct, frozen=True):
    """What placing a request will change: the blocks found for it, and the tokens that come from outside.

    ``num_tokens`` and ``match_version`` are the request's length and the connector's version that it was made for.
    """

    request_id: str
    computed: ComputedBlocks
    num_external_tokens: int
    load_kind: LoadKind
    num_tokens: int
    match_version: int

    @property
    def num_computed_tokens(self) -> int:
        """Tokens that need no computing."""
        return self.computed.num_tokens + self.num_external_tokens


class Staging:
    """All waiting requests, and the prepared deltas of the first of them.

    ``max_pinned_blocks``: the most blocks that deltas may keep from eviction. ``depth``: how many requests have one.
    """

    def __init__(
        self,
        queue: WaitingQueue,
        kv_cache: KvCacheManager,
        connector: KvConnector | None,
        *,
        max_pinned_blocks: int,
        depth: int,
    ) -> None:
        self._queue = queue
        self._aside: list[RequestState] = []
        self._kv_cache = kv_cache
        self._connector = connector
        self._depth = depth
        self._deltas: dict[str, PreparedDelta] = {}
        self._pins = Pins(kv_cache, max_pinned_blocks)
        self._rests = False

    def add(self, request: RequestState) -> None:
        """A new request."""
        self._queue.add(request)

    def put_back(self, request: RequestState) -> None:
        """A request that lost its blocks: it goes to the front."""
        self._queue.put_back(request)

    def remove(self, request_ids: Collection[str]) -> None:
        """Requests that ended while they waited."""
        for request_id in request_ids:
            self._drop(request_id)
        self._queue.remove(request_ids)
        self._rests = False

    def peek(self) -> RequestState | None:
        """Whose turn it is."""
        return self._queue.peek() if self._queue else None

    def pop(self) -> None:
        """The head was placed."""
        self._drop(self._queue.pop().request_id)
        self._rests = False

    def forget(self, request: RequestState) -> None:
        """What was found for a request is in its own blocks now, though it still waits."""
        self._drop(request.request_id)

    def set_aside(self) -> None:
        """The head cannot be placed now, and the next one may try, until ``restore``."""
        self._aside.append(self._queue.pop())

    def restore(self) -> None:
        """All that were set aside return to the head, in their order."""
        while self._aside:
            self._queue.put_back(self._aside.pop())

    def prepare(self) -> None:
        """The worker's turn: match the first requests that were not matched yet, in order, as far as pins reach."""
        if self._rests:
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
        """What is known now: prepared and carried on, or matched now; ``None`` if the connector cannot say yet."""
        delta = self._deltas.get(request.request_id)
        if delta is None or self._is_stale(delta, request):
            self._drop(request.request_id)
            return self._match(request, NOTHING_COMPUTED)
        longer = self._kv_cache.get_computed_blocks(request, delta.computed)
        return delta if longer.num_tokens == delta.computed.num_tokens else self._with_external(request, longer)

    def make_room(self, keep: RequestState | None = None) -> bool:
        """Blocks are short: drop all deltas but one, and rest until a request goes; whether that let go of any."""
        self._rests = True
        before = self._pins.num_blocks
        self.drop_all(keep)
        return self._pins.num_blocks < before

    def drop_all(self, keep: RequestState | None = None) -> None:
        """Forget what was found out, but for one request."""
        kept = keep.request_id if keep is not None else None
        for request_id in [request_id for request_id in self._deltas if request_id != kept]:
            self._drop(request_id)

    @property
    def num_pinned_blocks(self) -> int:
        """Blocks that deltas keep from eviction."""
        return self._pins.num_blocks

    def deltas(self) -> Sequence[PreparedDelta]:
        """What is prepared, in the order in which it was."""
        return tuple(self._deltas.values())

    def __len__(self) -> int:
        return len(self._queue) + len(self._aside)

    def __iter__(self) -> Iterator[RequestState]:
        yield from self._aside
        yield from self._queue

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
