"""The second phase of a step: waiting requests get the rest of the budget."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.admission import AdmissionResult, admit
from enginehouse_sim.simulator.scheduler.finishing import finish_waiting
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.step_plan import StepPlan


def schedule_waiting(state: SchedulerState, plan: StepPlan) -> None:
    """Admit from the head while there is budget and room; skip requests that cannot be placed now.

    As in vLLM, a step that preempted a request admits none. Skipped requests return to the head afterwards.
    """
    if plan.preempted or not _admits_in(state, plan.step):
        return
    try:
        while plan.available > 0 and _has_room(state):
            request = state.waiting.peek()
            if request is None:
                return
            verdict = _consider(state, plan, request)
            if verdict is AdmissionResult.STOP:
                return
            if verdict is AdmissionResult.SKIPPED:
                state.waiting.skip()
    finally:
        state.waiting.restore_skipped()


def _consider(state: SchedulerState, plan: StepPlan, request: RequestState) -> AdmissionResult:
    if state.max_new_requests is not None and not request.output_token_ids and len(plan.new) >= state.max_new_requests:
        return AdmissionResult.STOP
    if request.stale_step in state.in_flight:
        return AdmissionResult.SKIPPED
    if request.status is RequestStatus.WAITING_FOR_REMOTE_KVS and not _has_arrived(state, request):
        return AdmissionResult.SKIPPED
    if request.status is RequestStatus.WAITING_FOR_FSM:
        try:
            if not _has_grammar(state, request):
                return AdmissionResult.SKIPPED
        except ValueError as error:
            finish_waiting(state, request, RequestStatus.FINISHED_ABORTED, str(error))
            return AdmissionResult.FINISHED
    if not _lora_fits(plan, request, state.constants.max_loras):
        return AdmissionResult.SKIPPED
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
    return len(state.running) + paused_with_blocks < constants.max_num_active_seqs


def _lora_fits(plan: StepPlan, request: RequestState, max_loras: int | None) -> bool:
    """Whether the step has room for the request's adapter."""
    if max_loras is None or request.lora is None:
        return True
    loras = {scheduled.lora for scheduled in plan.requests if scheduled.lora is not None}
    return request.lora in loras or len(loras) < max_loras


def _has_arrived(state: SchedulerState, request: RequestState) -> bool:
    """Whether the load has ended. The engine computes the last known token in any case, and all if the load failed."""
    if state.transfers.is_loading(request):
        return False
    if state.transfers.take_failed(request):
        state.kv_cache.free(request)
        request.num_computed_tokens = 0
    else:
        state.kv_cache.cache_blocks(request, request.num_computed_tokens)
        request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
    request.status = RequestStatus.PREEMPTED if request.num_cached_tokens >= 0 else RequestStatus.WAITING
    return True


def _has_grammar(state: SchedulerState, request: RequestState) -> bool:
    if state.grammars is not None and not state.grammars.is_ready(request):
        return False
    request.status = RequestStatus.WAITING
    return True
