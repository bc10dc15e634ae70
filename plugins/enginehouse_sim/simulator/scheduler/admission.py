"""Admitting one waiting request: cached blocks, the tokens of this step, and room for them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.domain.outputs import PADDING_DRAFT, NewRequestData
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.domain.steps import CachedRequestData
from enginehouse_sim.simulator.scheduler.encoder_plan import EncoderPlan, plan_encoder
from enginehouse_sim.simulator.scheduler.finishing import finish_waiting
from enginehouse_sim.simulator.scheduler.prefill import longest_input, under_threshold
from enginehouse_sim.simulator.scheduler.prefix_match import PrefixMatch, match_prefix
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.step_plan import StepPlan


class AdmissionResult(Enum):
    """The result for the request at the head of the waiting queue."""

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
    match = PrefixMatch() if request.num_computed_tokens else match_prefix(state, request)
    if match is None:
        return AdmissionResult.SKIPPED
    if match.load_async:
        return _begin_load(state, request, match)
    constants = state.constants
    computed = match.num_computed_tokens or request.num_computed_tokens
    num_drafts = _num_padding_drafts(constants, plan, request, computed)
    if num_drafts >= plan.available:
        return AdmissionResult.STOP
    num_new_tokens = under_threshold(state, request.num_tokens - computed + num_drafts)
    if num_new_tokens > plan.available:
        if not constants.chunked_prefill_enabled:
            return AdmissionResult.STOP
        num_new_tokens = plan.available
    encoder = plan_encoder(state.encoder_cache, constants, request, computed, num_new_tokens, plan.encoder_budget)
    if encoder.num_new_tokens <= 0:
        return AdmissionResult.STOP
    if not _allocate(state, request, encoder.num_new_tokens, match):
        state.encoder_cache.release_all(request)
        return AdmissionResult.STOP
    _run(state, plan, request, computed, encoder, num_drafts)
    return AdmissionResult.SCHEDULED


def _num_padding_drafts(constants: SchedulerConstants, plan: StepPlan, request: RequestState, computed: int) -> int:
    """The drafts that a request gets whose only missing token is its next one.

    All are rejected, but all decodes of a step have equal lengths.
    """
    num_drafts = constants.num_spec_tokens
    if not num_drafts or request.pooling:
        return 0
    if request.num_tokens - computed != 1 or plan.prefills or not (plan.cached or computed):
        return 0
    return num_drafts if computed + num_drafts + 2 <= min(constants.max_model_len, constants.token_capacity) else 0


def never_fits(state: SchedulerState, request: RequestState) -> bool:
    """Whether the request could not run even in an empty engine."""
    constants = state.constants
    if request.num_tokens > min(constants.token_capacity, longest_input(constants, request)):
        return True
    longest_step = constants.max_num_batched_tokens - constants.draft_rules.slots
    if not constants.chunked_prefill_enabled and request.num_tokens > longest_step:
        return True
    largest = max((source.length for source in request.mm_inputs), default=0)
    return largest > min(constants.max_num_encoder_input_tokens, constants.encoder_cache_size)


def _begin_load(state: SchedulerState, request: RequestState, match: PrefixMatch) -> AdmissionResult:
    """Allocate blocks for the tokens that are loaded."""
    if not _allocate(state, request, 0, match):
        return AdmissionResult.STOP
    request.num_computed_tokens = match.num_computed_tokens
    request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    state.transfers.begin_load(request)
    return AdmissionResult.SKIPPED


def _allocate(state: SchedulerState, request: RequestState, num_new_tokens: int, match: PrefixMatch) -> bool:
    """Allocate blocks. Return whether it worked.

    A request that is alone does without room for drafts, because it would not get more by waiting. If requests that
    wait for each other hold all blocks, the last of them drops its blocks.
    """
    reserves = True
    while _allocate_once(state, request, num_new_tokens, match, reserves) is None:
        others = [other for other in state.waiting.holders() if other is not request]
        if state.running or (others and (state.transfers.num_loading or state.transfers.num_kept)):
            return False
        if others:
            _drop_blocks(state, others[-1])
        elif reserves:
            reserves = False
        else:
            return False
    _count_match(state, request, match)
    if state.connector is not None:
        block_ids = state.kv_cache.get_block_ids(request.request_id)
        state.connector.update_state_after_alloc(request, block_ids, match.num_external_tokens)
    return True


def _drop_blocks(state: SchedulerState, request: RequestState) -> None:
    """Let a waiting request start from the beginning."""
    state.free_blocks(request)
    request.status = RequestStatus.PREEMPTED if request.num_cached_tokens >= 0 else RequestStatus.WAITING


def _allocate_once(
    state: SchedulerState, request: RequestState, num_new_tokens: int, match: PrefixMatch, reserves: bool
) -> Sequence[int] | None:
    constants = state.constants
    loads = match.load_async
    return state.kv_cache.allocate_slots(
        request,
        num_new_tokens,
        computed=match.computed,
        num_external_tokens=match.num_external_tokens,
        num_lookahead_tokens=constants.num_lookahead_tokens if reserves and not loads else 0,
        delay_cache_blocks=loads,
        reserve_tokens=request.num_tokens if constants.reserve_full_sequence else 0,
        leave_free=constants.watermark_blocks if state.running else 0,
        reserved_blocks=_reserved_blocks(state) if loads and reserves else 0,
    )


def _reserved_blocks(state: SchedulerState) -> int:
    """The blocks that must stay free when a load begins: for the prompts of others, and for drafts of this request.

    The scheduler cannot preempt a loading request. Without these blocks, two loading requests could each wait for
    blocks that the other holds.
    """
    constants = state.constants
    drafts = 1 + constants.num_spec_tokens + constants.num_lookahead_tokens if constants.use_spec_decode else 0
    begun = [request for request in state.running if request.is_prefill_chunk]
    missing = (
        state.kv_cache.num_missing_blocks(other.request_id, min(other.num_tokens, constants.max_model_len) + drafts)
        for other in (*begun, *state.waiting.holders())
    )
    return sum(missing) + -(-drafts // constants.block_size)


def _count_match(state: SchedulerState, request: RequestState, match: PrefixMatch) -> None:
    if request.num_computed_tokens or request.num_preemptions:
        return
    totals = state.totals
    totals.prefix_cache_queries += request.num_tokens
    totals.prefix_cache_hits += match.computed.num_tokens
    if state.connector is not None:
        totals.external_cache_queries += request.num_tokens - match.computed.num_tokens
        totals.external_cache_hits += match.num_external_tokens


def _run(
    state: SchedulerState,
    plan: StepPlan,
    request: RequestState,
    computed: int,
    encoder: EncoderPlan,
    num_padding_drafts: int,
) -> None:
    state.waiting.pop()
    state.running.append(request)
    resumed = request.status is RequestStatus.PREEMPTED
    request.status = RequestStatus.RUNNING
    request.num_computed_tokens = computed
    if request.num_cached_tokens < 0:
        request.num_cached_tokens = computed
    request.is_prefill_chunk = computed + encoder.num_new_tokens < request.num_tokens
    plan.add(request, encoder.num_new_tokens)
    if num_padding_drafts:
        plan.spec_tokens[request.request_id] = [PADDING_DRAFT] * num_padding_drafts
    plan.add_encoder_inputs(state.encoder_cache, request, encoder)
    block_ids = tuple(state.kv_cache.get_block_ids(request.request_id))
    if resumed:
        known = tuple(request.all_token_ids)
        plan.resumed.append(CachedRequestData(request.request_id, True, block_ids, computed, known))
    else:
        plan.new.append(NewRequestData.of(request, block_ids, computed))
