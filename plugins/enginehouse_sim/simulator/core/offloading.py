"""Moves requests to host memory before blocks run out, and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec

from enginehouse_kit.offload import OffloadCandidate, plan_offload
from enginehouse_kit.projection import ProjectionParams, RequestFigures, WorstCaseProjection, project
from enginehouse_sim.options import OffloadSettings
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.block_pool import BlockHasher
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import KvSource
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.steps.costs import KvTransfer


class KvMove(msgspec.Struct, frozen=True):
    """A move of ``num_tokens`` to host memory: copying ``num_blocks``, which are not there yet, takes ``seconds``."""

    num_tokens: int
    num_blocks: int
    seconds: float


class HostTier(KvSource):
    """``num_blocks`` blocks of host memory.

    Blocks cannot be reused while they are copied, so an offload has two ends: ``begin_offload`` and ``finish_offload``.
    Admission restores, because the tier is a source of the connector. Only whole blocks move; the engine recomputes the
    tokens after them. Requests share equal blocks. The tier drops a request's blocks when the request is back on the
    device, or has finished.
    """

    def __init__(self, kv_cache: KvCacheManager, hasher: BlockHasher, num_blocks: int, transfer: KvTransfer) -> None:
        self.num_blocks = num_blocks
        self._kv_cache = kv_cache
        self._hasher = hasher
        self.transfer = transfer
        self._kept: dict[str, list[int]] = {}  # the hashes of each request's blocks
        self._holders: dict[int, int] = {}
        self._copying: set[str] = set()

    @property
    def num_free_blocks(self) -> int:
        return self.num_blocks - len(self._holders)

    def has_room_for(self, request: RequestState) -> bool:
        """Whether the computed blocks of ``request`` would fit now."""
        return self._num_missing(self._computed(request)) <= self.num_free_blocks

    def begin_offload(self, request: RequestState) -> KvMove | None:
        """Begin to copy the computed blocks of ``request``. Return ``None``, and do nothing, if they do not fit.

        No step may compute for the request until ``finish_offload``. Raises ``ValueError`` if it is offloaded already.
        """
        if request.request_id in self._kept:
            raise ValueError(f"request {request.request_id!r} was offloaded already: restore it first")
        hashes = self._computed(request)
        missing = self._num_missing(hashes)
        if missing > self.num_free_blocks:
            return None
        for content in hashes:
            self._holders[content] = self._holders.get(content, 0) + 1
        self._kept[request.request_id] = hashes
        self._copying.add(request.request_id)
        size = self._hasher.block_size
        return KvMove(len(hashes) * size, missing, self.seconds(missing * size))

    def finish_offload(self, request: RequestState) -> int:
        """The copy is complete: free the device blocks. Return how many more blocks are free now."""
        self._copying.discard(request.request_id)
        before = self._kv_cache.num_free_blocks
        self._kv_cache.free(request)
        return self._kv_cache.num_free_blocks - before

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """The offloaded tokens of the request, once their copy is complete."""
        if request.request_id in self._copying:
            return 0
        num_tokens = len(self._kept.get(request.request_id, ())) * self._hasher.block_size
        return max(0, num_tokens - num_computed_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        if not num_tokens:
            self._discard(request.request_id)

    def delivered(self, request_id: str) -> None:
        self._discard(request_id)

    def release(self, request: RequestState) -> None:
        self._discard(request.request_id)

    def _computed(self, request: RequestState) -> list[int]:
        """The hashes of the computed blocks whose tokens are known."""
        num_blocks = min(request.num_computed_tokens, request.num_tokens - 1) // self._hasher.block_size
        return self._hasher.extend(request)[:num_blocks]

    def _num_missing(self, hashes: Sequence[int]) -> int:
        return sum(content not in self._holders for content in hashes)

    def _discard(self, request_id: str) -> None:
        self._copying.discard(request_id)
        for content in self._kept.pop(request_id, ()):
            self._holders[content] -= 1
            if not self._holders[content]:
                del self._holders[content]


class BlockForecast:
    """Projects the blocks in use over the next ``passes``. This costs little while there is room in any case."""

    def __init__(self, state: SchedulerState, passes: int) -> None:
        constants = state.constants
        self._state = state
        self._params = ProjectionParams(
            block_size=constants.block_size,
            total_blocks=constants.total_gpu_blocks - 1,
            lookahead=passes,
            tokens_per_pass_per_request=1 + constants.num_spec_tokens,
            prefill_tokens_per_pass=constants.max_num_batched_tokens,
        )
        self._most_growth = passes * self._params.tokens_per_pass_per_request // constants.block_size + 2

    @property
    def total_blocks(self) -> int:
        return self._params.total_blocks

    def is_safe(self, joining: Sequence[RequestState] = ()) -> bool:
        """Whether the blocks last for all passes if the requests ``joining`` run as well."""
        if self._has_plenty(joining):
            return True
        return self.project(joining).wc_until_block_starvation is None

    def project(self, joining: Sequence[RequestState] = ()) -> WorstCaseProjection:
        """The worst case of the running requests and of ``joining``."""
        tables = [self._state.kv_cache.get_block_ids(request.request_id) for request in self._state.running]
        holders = Counter(chain.from_iterable(tables)) if self._state.constants.enable_prefix_caching else None
        figures = [
            self._figures(request, [block for block in table if holders[block] > 1] if holders is not None else ())
            for request, table in zip(self._state.running, tables, strict=True)
        ]
        return project([*figures, *(self._figures(request, ()) for request in joining)], self._params)

    def remaining_tokens(self, request: RequestState) -> int:
        most = min(request.num_prompt_tokens + request.max_tokens, self._state.constants.max_model_len)
        return max(1, most - request.num_tokens)

    def _has_plenty(self, joining: Sequence[RequestState]) -> bool:
        """Whether the free blocks last even if every request grows at the greatest rate."""
        size, running = self._params.block_size, self._state.running
        reading = sum(-(-request.num_tokens // size) for request in joining)
        unread = sum(
            -(-(request.num_tokens - request.num_computed_tokens) // size)
            for request in running
            if request.num_tokens - request.num_computed_tokens > self._params.tokens_per_pass_per_request
        )
        growth = (len(running) + len(joining)) * self._most_growth
        return reading + unread + growth <= self._state.kv_cache.num_free_blocks

    def _figures(self, request: RequestState, shared: Sequence[int]) -> RequestFigures:
        return RequestFigures(
            request_id=request.request_id,
            num_tokens=request.num_tokens + request.num_output_placeholders,
            num_computed_tokens=min(
                request.num_computed_tokens, request.num_tokens + request.num_output_placeholders - 1
            ),
            remaining_tokens=self.remaining_tokens(request),
            shared_blocks=shared,
        )


_UNSAFE_FOR = 4
"""Steps until a request that is not safe to admit is projected again, unless a running one finishes first."""


class _Copying(NamedTuple):
    """A request whose blocks are being copied until ``due``, in seconds."""

    request: RequestState
    due: float


class Offloading:
    """Projects the worst case before each step, and offloads requests so that it does not occur.

    A selected request runs until its last block is full, or until its deadline. Then it is paused, and once its steps
    in flight are over, its blocks are copied. After that it frees them, and returns through the head of the waiting
    queue with the copied tokens. The scheduler admits no new request while requests are offloaded, or while that would
    not be safe.
    """

    def __init__(self, scheduler: BatchScheduler, tier: HostTier, settings: OffloadSettings) -> None:
        self._scheduler = scheduler
        self._tier = tier
        self._settings = settings
        self._state = scheduler.state
        self._forecast = BlockForecast(scheduler.state, settings.safe_for)
        self._calm_until = 0
        self._seen: set[str] = set()
        self._unsafe: tuple[str, int] = ("", 0)  # the request that is not admitted, and the number that run beside it
        self._unsafe_until = 0
        self._selected: dict[str, int] = {}  # by request, the step before which its copy must begin
        self._leaving: dict[str, RequestState] = {}  # paused, and steps of it may be in flight
        self._copying: dict[str, _Copying] = {}
        self._offloaded: dict[str, RequestState] = {}
        self._outputs_at_return: dict[str, int] = {}

    def before_step(self, now: float) -> None:
        """Carry out the moves that are due, and select requests. ``now``: seconds on the engine's clock."""
        self._remove_finished()
        self._finish_copies(now)
        self._resume()
        self._select()
        self._pause_selected()
        self._begin_copies(now)
        self._state.max_new_requests = self._max_new_requests()

    # --- to host memory

    def _select(self) -> None:
        """Select requests to offload, if the worst case runs out of blocks soon.

        That of the running requests gets worse only if others join them, so it is not projected again before that.
        """
        running, settings = {request.request_id for request in self._state.running}, self._settings
        if self._state.next_step < self._calm_until and running <= self._seen:
            self._selected.clear()
            return
        projection = self._forecast.project()
        starvation = projection.wc_until_block_starvation
        passes = settings.safe_for if starvation is None else starvation
        self._calm_until, self._seen = self._state.next_step + passes - settings.starvation_within, running
        if starvation is None or starvation >= settings.starvation_within:
            self._selected.clear()
            return
        needed = projection.predicted_blocks_per_pass[: settings.starvation_within]
        candidates = [self._candidate(request) for request in self._state.running[1:] if self._may_move(request)]
        plan = plan_offload(candidates, max(needed) - self._forecast.total_blocks, settings.order)
        last_step = self._state.next_step + max(0, starvation - 1 - self._state.plans_ahead)
        by = {each.request_id: self._state.next_step + each.tokens_to_boundary for each in plan.selected}
        self._selected = {name: min(step, last_step, self._selected.get(name, step)) for name, step in by.items()}

    def _may_move(self, request: RequestState) -> bool:
        name = request.request_id
        decodes = request.num_tokens - request.num_computed_tokens <= 1
        made = len(request.output_token_ids) - self._outputs_at_return.get(name, 0)
        return decodes and made >= self._settings.guaranteed_tokens

    def _candidate(self, request: RequestState) -> OffloadCandidate:
        size = self._state.constants.block_size
        return OffloadCandidate(
            request_id=request.request_id,
            blocks=self._state.kv_cache.freeable_blocks(request.request_id),
            remaining_tokens=self._forecast.remaining_tokens(request),
            tokens_to_boundary=-request.num_computed_tokens % size,
            priority=request.priority,
        )

    def _pause_selected(self) -> None:
        """Pause selected requests whose time has come; if host memory is full, the scheduler preempts one instead."""
        for name, by in list(self._selected.items()):
            request = self._state.requests[name]
            at_boundary = request.num_computed_tokens % self._state.constants.block_size == 0
            if not at_boundary and self._state.next_step < by:
                continue
            del self._selected[name]
            if self._tier.has_room_for(request):
                self._scheduler.pause(name, keep_blocks=True)
                self._leaving[name] = request

    def _begin_copies(self, now: float) -> None:
        for name, request in list(self._leaving.items()):
            if self._state.last_step_in_flight(name) >= 0:
                continue
            move = self._tier.begin_offload(request)
            if move is not None:
                self._copying[name] = _Copying(request, now + move.seconds)
            elif not self._scheduler.resume(name):
                continue
            del self._leaving[name]

    def _finish_copies(self, now: float) -> None:
        """Free the blocks of requests whose copies are complete."""
        for name, copying in list(self._copying.items()):
            if copying.due <= now:
                del self._copying[name]
                self._tier.finish_offload(copying.request)
                self._scheduler.drop_blocks(name)
                self._offloaded[name] = copying.request

    # --- back to the device

    def _resume(self) -> None:
        """Resume the longest offloaded request if that is safe, or at once if nothing else runs."""
        for name, request in list(self._offloaded.items()):
            is_idle = not self._state.running and not len(self._state.waiting)
            if not is_idle and (self._selected or not self._forecast.is_safe([request])):
                return
            del self._offloaded[name]
            self._outputs_at_return[name] = len(request.output_token_ids)
            self._scheduler.resume(name)

    def _max_new_requests(self) -> int | None:
        """How many new requests the next step may admit: one if that is safe, or any number if nothing runs.

        0 while requests are offloaded, or wait for their blocks again.
        """
        following = self._state.waiting.peek()
        if following is None or not self._state.running:
            return None
        if self._leaving or self._copying or self._offloaded or following.output_token_ids:
            return 0
        asked = following.request_id, len(self._state.running)
        if asked == self._unsafe and self._state.next_step < self._unsafe_until:
            return 0
        if self._forecast.is_safe([following]):
            return 1
        self._unsafe, self._unsafe_until = asked, self._state.next_step + _UNSAFE_FOR
        return 0

    def _remove_finished(self) -> None:
        live = self._state.requests
        ours: tuple[dict[str, Any], ...] = (self._selected, self._leaving, self._copying, self._offloaded)
        for requests in (*ours, self._outputs_at_return):
            for name in [name for name in requests if name not in live]:
                del requests[name]
