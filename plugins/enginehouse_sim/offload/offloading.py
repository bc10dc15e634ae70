"""The planned way out of device memory, and back."""

from __future__ import annotations

from typing import Any, NamedTuple

from enginehouse import OffloadCandidate, plan_offload
from enginehouse_sim.kv.host_tier import HostTier
from enginehouse_sim.offload.outlook import Outlook
from enginehouse_sim.offload.settings import OffloadSettings
from enginehouse_sim.offload.watch import Watch
from enginehouse_sim.scheduler.request import RequestState
from enginehouse_sim.scheduler.scheduler import BatchScheduler


class _Leaving(NamedTuple):
    """A request whose blocks are being copied until ``due``, in seconds."""

    request: RequestState
    due: float


class Offloading:
    """Looks at the worst case before each step, and moves requests so that it does not come to pass.

    Who is chosen goes on until its last block is full, or until there is no more time; then it rests while its blocks
    are copied, gives them back, and returns through the head of those that wait, with what host memory kept of it. As
    long as somebody is away, and while it would not be safe, nobody new is admitted.
    """

    def __init__(self, scheduler: BatchScheduler, tier: HostTier, settings: OffloadSettings) -> None:
        self.num_offloaded = 0
        self._scheduler = scheduler
        self._tier = tier
        self._settings = settings
        self._state = scheduler.state
        self._outlook = Outlook(scheduler.state, settings.safe_for)
        self._watch = Watch(scheduler.state, settings)
        self._chosen: dict[str, int] = {}  # the step by which it has to go
        self._leaving: dict[str, _Leaving] = {}
        self._resting: dict[str, RequestState] = {}
        self._outputs_when_back: dict[str, int] = {}

    def before_step(self, now: float) -> None:
        """``now``: seconds on the engine's clock."""
        self._forget_the_ended()
        self._let_go(now)
        self._bring_back()
        self._choose()
        self._send_away(now)
        self._state.max_newcomers = self._num_newcomers()

    # --- away

    def _choose(self) -> None:
        """Decide who has to go, if the worst case runs out of blocks soon."""
        if self._watch.is_calm():
            self._chosen.clear()
            return
        projection = self._outlook.project()
        starvation = projection.wc_until_block_starvation
        self._watch.saw(starvation)
        if starvation is None or starvation >= self._settings.starvation_within:
            self._chosen.clear()
            return
        needed = projection.predicted_blocks_per_pass[: self._settings.starvation_within]
        candidates = [self._candidate(request) for request in self._state.running[1:] if self._may_go(request)]
        plan = plan_offload(candidates, max(needed) - self._outlook.total_blocks, self._settings.order)
        last_step = self._state.next_step + max(0, starvation - 1)
        by = {each.request_id: self._state.next_step + each.tokens_to_boundary for each in plan.selected}
        self._chosen = {name: min(step, last_step, self._chosen.get(name, step)) for name, step in by.items()}

    def _may_go(self, request: RequestState) -> bool:
        name = request.request_id
        decodes = request.num_tokens - request.num_computed_tokens <= 1
        made = len(request.output_token_ids) - self._outputs_when_back.get(name, 0)
        return decodes and made >= self._settings.guaranteed_tokens and self._state.last_step_in_flight(name) < 0

    def _candidate(self, request: RequestState) -> OffloadCandidate:
        size = self._state.constants.block_size
        return OffloadCandidate(
            request_id=request.request_id,
            blocks=self._state.kv_cache.freeable_blocks(request.request_id),
            remaining_tokens=self._outlook.remaining_tokens(request),
            tokens_to_boundary=-request.num_computed_tokens % size,
            priority=request.priority,
        )

    def _send_away(self, now: float) -> None:
        for name, by in list(self._chosen.items()):
            request = self._state.requests[name]
            at_boundary = request.num_computed_tokens % self._state.constants.block_size == 0
            if not at_boundary and self._state.next_step < by:
                continue
            del self._chosen[name]
            move = self._tier.offload(request)
            if move is not None:  # else host memory is full, and whoever has no room is preempted
                self._scheduler.pause(name, keep_blocks=True)
                self._leaving[name] = _Leaving(request, now + move.seconds)
                self.num_offloaded += 1

    def _let_go(self, now: float) -> None:
        """Free the blocks of those whose copies are complete."""
        for name, leaving in list(self._leaving.items()):
            if leaving.due <= now:
                del self._leaving[name]
                self._tier.offloaded(leaving.request)
                self._scheduler.drop_blocks(name)
                self._resting[name] = leaving.request

    # --- and back

    def _bring_back(self) -> None:
        """The one that is away for the longest time first, if it is safe to; at once if nothing else runs."""
        for name, request in list(self._resting.items()):
            nobody_runs = not self._state.running and not len(self._state.staging)
            if not nobody_runs and (self._chosen or not self._outlook.is_safe([request])):
                return
            del self._resting[name]
            self._outputs_when_back[name] = len(request.output_token_ids)
            self._scheduler.resume(name)

    def _num_newcomers(self) -> int | None:
        """How many new requests the next step may admit: one, and only if that is safe; any number if nothing runs.

        None of them while somebody is away, or came back and does not run yet.
        """
        following = self._state.staging.peek()
        if following is None or not self._state.running:
            return None
        if self._leaving or self._resting or following.output_token_ids or self._watch.was_refused(following):
            return 0
        if self._outlook.is_safe([following]):
            return 1
        self._watch.refused(following)
        return 0

    def _forget_the_ended(self) -> None:
        live = self._state.requests
        ours: tuple[dict[str, Any], ...] = (self._chosen, self._leaving, self._resting, self._outputs_when_back)
        for requests in ours:
            for name in [name for name in requests if name not in live]:
                del requests[name]
