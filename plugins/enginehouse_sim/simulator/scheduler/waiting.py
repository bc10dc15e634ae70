"""The second phase of a step: waiting requests get the rest of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from enginehouse_sim.options import SchedulerConstants
from enginehouse_sim.simulator.domain.outputs import PADDING_DRAFT, NewRequestData
from enginehouse_sim.simulator.domain.request import CachedRequestData, RequestState, RequestStatus
from enginehouse_sim.simulator.kv.cache_manager import NOTHING_COMPUTED, ComputedBlocks
from enginehouse_sim.simulator.scheduler.encoder import EncoderPlan, plan_encoder
from enginehouse_sim.simulator.scheduler.running import longest_input, under_threshold
from enginehouse_sim.simulator.scheduler.state import SchedulerState, StepPlan, finish_waiting


class PrefixMatch(NamedTuple):
    """The cached blocks of a request, and the tokens after them that the connector has.

    ``load_async``: these arrive between steps, not within one.
    """

    computed: ComputedBlocks = NOTHING_COMPUTED
    num_external_tokens: int = 0
    load_async: bool = False

    @property
    def num_computed_tokens(self) -> int:
        return self.computed.num_tokens + self.num_external_tokens


def match_prefix(state: SchedulerState, request: RequestState) -> PrefixMatch | None:
    """The match of a request without blocks; ``None`` if the connector cannot tell yet."""
    computed = state.kv_cache.get_computed_blocks(request)
    if state.connector is None:
        return PrefixMatch(computed)
    match = state.connector.get_num_new_matched_tokens(request, computed.num_tokens)
    if match.num_tokens is None:
        return None
    last_is_computed_here = not match.load_async or request.num_tokens == 1
    num_external = min(match.num_tokens, request.num_tokens - last_is_computed_here - computed.num_tokens)
    if not num_external:
        return PrefixMatch(computed)
    return PrefixMatch(computed, num_external, match.load_async)


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
    if num_drafts >= plan.token_budget:
        return AdmissionResult.STOP
    num_new_tokens = under_threshold(state, request.num_tokens - computed + num_drafts)
    if num_new_tokens > plan.token_budget:
        if not constants.chunked_prefill_enabled:
            return AdmissionResult.STOP
        num_new_tokens = plan.token_budget
    drafts = constants.use_spec_decode
    encoder = plan_encoder(state.encoder_cache, drafts, request, computed, num_new_tokens, plan.encoder_budget)
    if encoder.num_new_tokens <= 0:
        return AdmissionResult.STOP
    if not _allocate(state, request, encoder.num_new_tokens, match):
        state.encoder_cache.release_all(request)
        return AdmissionResult.STOP
    _begin_running(state, plan, request, computed, encoder, num_drafts)
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
    if not constants.chunked_prefill_enabled and request.num_tokens > constants.max_num_batched_tokens:
        return True
    largest = max((source.length for source in request.mm_inputs), default=0)
    return largest > min(constants.max_num_encoder_input_tokens, constants.encoder_cache_size)


def _begin_load(state: SchedulerState, request: RequestState, match: PrefixMatch) -> AdmissionResult:
    if not _allocate(state, request, 0, match):
        return AdmissionResult.STOP
    request.num_computed_tokens = match.num_computed_tokens
    request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
    state.loading.add(request.request_id)
    return AdmissionResult.SKIPPED


def _allocate(state: SchedulerState, request: RequestState, num_new_tokens: int, match: PrefixMatch) -> bool:
    """Allocate blocks. Return whether it worked.

    A request that is alone does without room for drafts, because it would not get more by waiting. If requests that
    wait for each other hold all blocks, the last of them drops its blocks.
    """
    reserves = True
    while _allocate_once(state, request, num_new_tokens, match, reserves) is None:
        others = [other for other in state.waiting.holders() if other is not request]
        if state.running or (others and (state.loading or state.kept)):
            return False
        if others:
            last = others[-1]  # it starts from the beginning
            state.free_blocks(last)
            last.status = RequestStatus.PREEMPTED if last.num_cached_tokens >= 0 else RequestStatus.WAITING
        elif reserves:
            reserves = False
        else:
            return False
    _count_match(state, request, match)
    if state.connector is not None:
        block_ids = state.kv_cache.get_block_ids(request.request_id)
        state.connector.update_state_after_alloc(request, block_ids, match.num_external_tokens)
    return True


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
        num_lookahead_tokens=constants.num_spec_tokens if reserves and not loads else 0,
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
    drafts = 1 + 2 * constants.num_spec_tokens if constants.use_spec_decode else 0
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
        totals.external_prefix_cache_queries += request.num_tokens - match.computed.num_tokens
        totals.external_prefix_cache_hits += match.num_external_tokens


def _begin_running(
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


def schedule_waiting(state: SchedulerState, plan: StepPlan) -> None:
    """Admit from the head while there is budget and room; skip requests that cannot be placed now.

    As in vLLM, a step that preempted a request admits none. Skipped requests return to the head afterwards.
    """
    if plan.preempted or (state.running and plan.step % state.constants.prefill_schedule_interval):
        return
    try:
        while plan.token_budget > 0 and _has_room(state):
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
            if state.grammars is not None and not state.grammars.is_ready(request):
                return AdmissionResult.SKIPPED
        except ValueError as error:
            finish_waiting(state, request, RequestStatus.FINISHED_ABORTED, str(error))
            return AdmissionResult.FINISHED
        request.status = RequestStatus.WAITING
    if not _lora_fits(plan, request, state.constants.max_loras):
        return AdmissionResult.SKIPPED
    return admit(state, plan, request)


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
    lora = request.asked.lora
    if max_loras is None or lora is None:
        return True
    loras = {scheduled.asked.lora for scheduled in plan.requests} - {None}
    return lora in loras or len(loras) < max_loras


def _has_arrived(state: SchedulerState, request: RequestState) -> bool:
    """Whether the load has ended. The engine computes the last known token in any case."""
    if request.request_id in state.loading:
        return False
    state.kv_cache.cache_blocks(request, request.num_computed_tokens)
    request.num_computed_tokens = min(request.num_computed_tokens, request.num_tokens - 1)
    request.status = RequestStatus.PREEMPTED if request.num_cached_tokens >= 0 else RequestStatus.WAITING
    return True
