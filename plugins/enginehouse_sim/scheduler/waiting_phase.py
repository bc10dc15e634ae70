"""The second phase of a step: requests that wait get what is left."""

from __future__ import annotations

from enginehouse_sim.scheduler.admission import Verdict, admit
from enginehouse_sim.scheduler.finishing import end_unserved
from enginehouse_sim.scheduler.request import RequestState, RequestStatus
from enginehouse_sim.scheduler.state import SchedulerState
from enginehouse_sim.scheduler.step_plan import StepPlan


def schedule_waiting(state: SchedulerState, plan: StepPlan) -> None:
    """From the head, while there is budget and room; whoever cannot be placed just now is passed over.

    Nobody is admitted in a step that had to preempt. Who was passed over is at the head again afterwards.
    """
    if plan.preempted or not _admits_in(state, plan.step):
        return
    try:
        while plan.token_budget > 0 and _has_room(state):
            request = state.staging.peek()
            if request is None:
                return
            verdict = _consider(state, plan, request)
            if verdict is Verdict.STOP:
                return
            if verdict is Verdict.ASIDE:
                state.staging.set_aside()
    finally:
        state.staging.restore()


def _consider(state: SchedulerState, plan: StepPlan, request: RequestState) -> Verdict:
    if state.max_newcomers is not None and not request.output_token_ids and len(plan.new) >= state.max_newcomers:
        return Verdict.STOP
    if request.stale_step in state.in_flight:
        return Verdict.ASIDE
    if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS and not _has_arrived(state, request):
        return Verdict.ASIDE
    if request.status is RequestStatus.WAITING_FOR_FSM:
        try:
            if not _has_grammar(state, request):
                return Verdict.ASIDE
        except ValueError as error:
            end_unserved(state, request, RequestStatus.FINISHED_ABORTED, str(error))
            return Verdict.ENDED
    if not _lora_fits(plan, request, state.constants.max_loras):
        return Verdict.ASIDE
    return admit(state, plan, request)


def _admits_in(state: SchedulerState, step: int) -> bool:
    return not state.running or step % state.constants.prefill_schedule_interval == 0


def _has_room(state: SchedulerState) -> bool:
    constants = state.constants
    if len(state.running) >= constants.max_num_seqs:
        return False
    if constants.max_num_active_seqs is None:
        return True
    paused_with_blocks = sum(request.num_computed_tokens > 0 for request in state.paused.values())
    active = len(state.running) + state.transfers.num_loading + paused_with_blocks
    return active < constants.max_num_active_seqs


def _lora_fits(plan: StepPlan, request: RequestState, max_loras: int | None) -> bool:
    """Whether the step can take the request's adapter on."""
    if max_loras is None or request.lora is None:
        return True
    loras = {scheduled.lora for scheduled in plan.requests if scheduled.lora is not None}
    return request.lora in loras or len(loras) < max_loras


def _has_arrived(state: SchedulerState, request: RequestState) -> bool:
    """Whether what was loaded from outside is there; the last known token is computed here in any case."""
    if state.transfers.is_loading(request):
        return False
    request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
    state.kv_cache.cache_blocks(request, request.num_computed_tokens)
    request.status = RequestStatus.PREEMPTED if request.num_cached_tokens >= 0 else RequestStatus.WAITING
    return True


def _has_grammar(state: SchedulerState, request: RequestState) -> bool:
    if state.grammars is not None and not state.grammars.is_ready(request):
        return False
    request.status = RequestStatus.WAITING
    return True
