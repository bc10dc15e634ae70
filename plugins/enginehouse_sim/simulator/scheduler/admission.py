"""Admitting one waiting request: cached blocks, the tokens of this step, and room for them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from enginehouse_sim.simulator.domain.outputs import CachedRequestData, NewRequestData
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.kv.computed_blocks import NOTHING_COMPUTED
from enginehouse_sim.simulator.scheduler.encoder_plan import EncoderPlan, plan_encoder
from enginehouse_sim.simulator.scheduler.finishing import finish_waiting
from enginehouse_sim.simulator.scheduler.prefill import longest_input, under_threshold
from enginehouse_sim.simulator.scheduler.staging import LoadKind, PreparedDelta
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.step_plan import StepPlan


class AdmissionResult(Enum):
    """What happened to the request at the head of the waiting queue."""

    SCHEDULED = "scheduled"
    SKIPPED = "skipped: the next request may try"
    STOP = "stop: no request overtakes it"
    FINISHED = "finished: it can never run"


def admit(state: SchedulerState, plan: StepPlan, request: RequestState) -> AdmissionResult:
    """Schedule the request if it fits, and only then remove it from the waiting queue."""
    if never_fits(state, request):
        status = RequestStatus.FINISHED_LENGTH_CAPPED if request.output_token_ids else RequestStatus.FINISHED_IGNORED
        finish_waiting(state, request, status)
        return AdmissionResult.FINISHED
    delta = _delta(state, request)
    if delta is None:
        return AdmissionResult.SKIPPED
    if delta.load_kind is LoadKind.ASYNC:
        return _begin_load(state, request, delta)
    computed = delta.num_computed_tokens or request.num_computed_tokens
    num_new_tokens = under_threshold(state, request.num_tokens - computed)
    if num_new_tokens > plan.token_budget:
        if not state.constants.chunked_prefill_enabled:
            return AdmissionResult.SKIPPED
        num_new_tokens = plan.token_budget
    encoder = plan_encoder(state.encoder_cache, state.constants, request, computed, num_new_tokens, plan.encoder_budget)
    if encoder.num_new_tokens <= 0 or not _allocate(state, request, encoder.num_new_tokens, delta):
        return AdmissionResult.STOP
    _run(state, plan, request, computed, encoder)
    return AdmissionResult.SCHEDULED


def never_fits(state: SchedulerState, request: RequestState) -> bool:
    """Whether the request could not run even in an empty engine."""
    constants = state.constants
    if request.num_tokens > min(constants.token_capacity, longest_input(constants, request)):
        return True
    if not constants.chunked_prefill_enabled and request.num_tokens > constants.token_budget:
        return True
    largest = max((source.length for source in request.mm_inputs), default=0)
    return largest > min(constants.max_num_encoder_input_tokens, constants.encoder_cache_size)


def _delta(state: SchedulerState, request: RequestState) -> PreparedDelta | None:
    """The prepared match; nothing more is looked up once a load has arrived."""
    if request.num_computed_tokens:
        return PreparedDelta(request.request_id, NOTHING_COMPUTED, 0, LoadKind.NONE, request.num_tokens, 0)
    return state.staging.delta_for(request)


def _begin_load(state: SchedulerState, request: RequestState, delta: PreparedDelta) -> AdmissionResult:
    """Allocate blocks for all known tokens at once.

    Otherwise two loading requests could each wait for blocks that the other one holds.
    """
    if not _allocate(state, request, request.num_tokens - delta.num_computed_tokens, delta):
        return AdmissionResult.STOP
    state.staging.discard_delta(request)
    request.num_computed_tokens = delta.num_computed_tokens
    request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    state.transfers.begin_load(request)
    return AdmissionResult.SKIPPED


def _allocate(state: SchedulerState, request: RequestState, num_new_tokens: int, delta: PreparedDelta) -> bool:
    """Allocate blocks, after unpinning those of other waiting requests if necessary. Return whether it worked."""
    if _allocate_once(state, request, num_new_tokens, delta) is None and not (
        state.staging.make_room(keep=request) and _allocate_once(state, request, num_new_tokens, delta) is not None
    ):
        return False
    _count_match(state, request, delta)
    if state.connector is not None:
        block_ids = state.kv_cache.get_block_ids(request.request_id)
        state.connector.update_state_after_alloc(request, block_ids, delta.num_external_tokens)
    return True


def _allocate_once(
    state: SchedulerState, request: RequestState, num_new_tokens: int, delta: PreparedDelta
) -> Sequence[int] | None:
    constants = state.constants
    return state.kv_cache.allocate_slots(
        request,
        num_new_tokens,
        computed=delta.computed,
        num_external_tokens=delta.num_external_tokens,
        num_lookahead_tokens=constants.num_spec_tokens if request.num_computed_tokens else 0,
        delay_cache_blocks=delta.load_kind is LoadKind.ASYNC,
        reserve_tokens=request.num_tokens if constants.reserve_full_sequence else 0,
        leave_free=constants.watermark_blocks if state.running else 0,
    )


def _count_match(state: SchedulerState, request: RequestState, delta: PreparedDelta) -> None:
    if request.num_computed_tokens or request.num_preemptions:
        return
    totals = state.totals
    totals.prefix_cache_queries += request.num_tokens
    totals.prefix_cache_hits += delta.computed.num_tokens
    if state.connector is not None:
        totals.external_cache_queries += request.num_tokens - delta.computed.num_tokens
        totals.external_cache_hits += delta.num_external_tokens


def _run(state: SchedulerState, plan: StepPlan, request: RequestState, computed: int, encoder: EncoderPlan) -> None:
    state.staging.pop()
    state.running.append(request)
    resumed = request.status is RequestStatus.PREEMPTED
    request.status = RequestStatus.RUNNING
    request.num_computed_tokens = computed
    if request.num_cached_tokens < 0:
        request.num_cached_tokens = computed
    plan.add(request, encoder.num_new_tokens)
    plan.add_encoder_inputs(state.encoder_cache, request, encoder)
    block_ids = tuple(state.kv_cache.get_block_ids(request.request_id))
    if resumed:
        known = tuple(request.all_token_ids)
        plan.resumed.append(CachedRequestData(request.request_id, True, block_ids, computed, known))
    else:
        plan.new.append(NewRequestData.of(request, block_ids, computed))
