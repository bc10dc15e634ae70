"""Moves requests to host memory before blocks run out, and back."""

from __future__ import annotations

from typing import Any, NamedTuple

from enginehouse import OffloadCandidate, plan_offload
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.host_tier import HostTier
from enginehouse_sim.simulator.offload.block_forecast import BlockForecast
from enginehouse_sim.simulator.offload.last_projection import LastProjection
from enginehouse_sim.simulator.offload.settings import OffloadSettings
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler


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
        self._last_projection = LastProjection(scheduler.state, settings)
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
        """Select requests to offload, if the worst case runs out of blocks soon."""
        if self._last_projection.is_current():
            self._selected.clear()
            return
        projection = self._forecast.project()
        starvation = projection.wc_until_block_starvation
        self._last_projection.record(starvation)
        if starvation is None or starvation >= self._settings.starvation_within:
            self._selected.clear()
            return
        needed = projection.predicted_blocks_per_pass[: self._settings.starvation_within]
        candidates = [self._candidate(request) for request in self._state.running[1:] if self._may_move(request)]
        plan = plan_offload(candidates, max(needed) - self._forecast.total_blocks, self._settings.order)
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
        if self._last_projection.is_known_unsafe(following):
            return 0
        if self._forecast.is_safe([following]):
            return 1
        self._last_projection.record_unsafe(following)
        return 0

    def _remove_finished(self) -> None:
        live = self._state.requests
        ours: tuple[dict[str, Any], ...] = (self._selected, self._leaving, self._copying, self._offloaded)
        for requests in (*ours, self._outputs_at_return):
            for name in [name for name in requests if name not in live]:
                del requests[name]
