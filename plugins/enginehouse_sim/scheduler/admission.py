"""Placing one waiting request: matched blocks, tokens of this step, and room for them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from enginehouse_sim.scheduler.encoder_plan import EncoderPlan, plan_encoder
from enginehouse_sim.scheduler.finishing import end_unserved
from enginehouse_sim.scheduler.interfaces import NOTHING_COMPUTED
from enginehouse_sim.scheduler.output import CachedRequestData, NewRequestData
from enginehouse_sim.scheduler.prefill import longest_input, under_threshold
from enginehouse_sim.scheduler.request import RequestState, RequestStatus
from enginehouse_sim.scheduler.staging import LoadKind, PreparedDelta
from enginehouse_sim.scheduler.state import SchedulerState
from enginehouse_sim.scheduler.step_plan import StepPlan


class Verdict(Enum):
    """What became of the head of those that wait."""

    PLACED = "it runs"
    ASIDE = "not now, the next one may try"
    STOP = "not now, and nobody overtakes it"
    ENDED = "it never can run"


def admit(state: SchedulerState, plan: StepPlan, request: RequestState) -> Verdict:
    """Place the request if it fits, and only then take it from those that wait."""
    if never_fits(state, request):
        status = RequestStatus.FINISHED_LENGTH_CAPPED if request.output_token_ids else RequestStatus.FINISHED_IGNORED
        end_unserved(state, request, status)
        return Verdict.ENDED
    delta = _delta(state, request)
    if delta is None:
        return Verdict.ASIDE
    if delta.load_kind is LoadKind.ASYNC:
        return _begin_load(state, request, delta)
    computed = delta.num_computed_tokens or request.num_computed_tokens
    num_new_tokens = under_threshold(state, request.num_tokens - computed)
    if num_new_tokens > plan.token_budget:
        if not state.constants.chunked_prefill_enabled:
            return Verdict.ASIDE
        num_new_tokens = plan.token_budget
    encoder = plan_encoder(state.encoder_cache, state.constants, request, computed, num_new_tokens, plan.encoder_budget)
    if encoder.num_new_tokens <= 0 or not _allocate(state, request, encoder.num_new_tokens, delta):
        return Verdict.STOP
    _run(state, plan, request, computed, encoder)
    return Verdict.PLACED


def never_fits(state: SchedulerState, request: RequestState) -> bool:
    """Whether no step of an empty engine could take the request on."""
    constants = state.constants
    if request.num_tokens > min(constants.token_capacity, longest_input(constants, request)):
        return True
    if not constants.chunked_prefill_enabled and request.num_tokens > constants.token_budget:
        return True
    largest = max((source.length for source in request.mm_inputs), default=0)
    return largest > min(constants.max_num_encoder_input_tokens, constants.encoder_cache_size)


def _delta(state: SchedulerState, request: RequestState) -> PreparedDelta | None:
    """What was found for it; nothing more is looked for once its load has arrived."""
    if request.num_computed_tokens:
        return PreparedDelta(request.request_id, NOTHING_COMPUTED, 0, LoadKind.NONE, request.num_tokens, 0)
    return state.staging.delta_for(request)


def _begin_load(state: SchedulerState, request: RequestState, delta: PreparedDelta) -> Verdict:
    """Blocks for all that is known, at once: the load must not end up waiting for those who wait for its blocks."""
    if not _allocate(state, request, request.num_tokens - delta.num_computed_tokens, delta):
        return Verdict.STOP
    state.staging.forget(request)
    request.num_computed_tokens = delta.num_computed_tokens
    request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    state.transfers.begin_load(request)
    return Verdict.ASIDE


def _allocate(state: SchedulerState, request: RequestState, num_new_tokens: int, delta: PreparedDelta) -> bool:
    """Whether there was room, if need be after letting go of what was prepared for others."""
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
    plan.take(request, encoder.num_new_tokens)
    plan.take_encoder(state.encoder_cache, request, encoder)
    block_ids = tuple(state.kv_cache.get_block_ids(request.request_id))
    if resumed:
        known = tuple(request.all_token_ids)
        plan.resumed.append(CachedRequestData(request.request_id, True, block_ids, computed, known))
    else:
        plan.new.append(NewRequestData.of(request, block_ids, computed))
