"""The first phase of a step: running requests continue; and many steady steps at once, for replays.

In a steady step, every running request gets one more token, and none waits, arrives or ends. Their outcome is known
beforehand, so a replay carries out many of them in one call. The result is that of the single steps, down to block ids.
"""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.options import SchedulerConstants, SchedulingPolicy
from enginehouse_sim.simulator.domain.request import CachedRequestData, RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.encoder import plan_encoder
from enginehouse_sim.simulator.scheduler.state import SchedulerState, StepPlan


def longest_input(constants: SchedulerConstants, request: RequestState) -> int:
    """The most tokens that the model computes for a request; the last token of an answer needs no computing."""
    return constants.max_model_len if request.pooling else constants.max_model_len - 1


def under_threshold(state: SchedulerState, num_new_tokens: int) -> int:
    """``num_new_tokens``, cut to the long-prefill threshold unless the request is alone."""
    constants = state.constants
    threshold = constants.long_prefill_token_threshold
    if not 0 < threshold < num_new_tokens:
        return num_new_tokens
    is_alone = len(state.requests) == 1
    return num_new_tokens if is_alone else threshold


def preempt_one(state: SchedulerState, plan: StepPlan) -> RequestState:
    """Preempt the least urgent running request, and put it at the head of the waiting queue.

    Its tokens, drafts and encoder budget of this step become available again.
    """
    victim = state.running.pop(_victim(state))
    plan.remove(victim)
    state.free_blocks(victim)
    victim.status = RequestStatus.PREEMPTED
    victim.num_preemptions += 1
    state.totals.num_preemptions += 1
    state.waiting.put_back(victim)
    plan.preempted.append(victim.request_id)
    return victim


def _victim(state: SchedulerState) -> int:
    """The request that arrived last, with priorities of those with the greatest one."""
    running = state.running
    if state.constants.policy is SchedulingPolicy.FCFS:
        return len(running) - 1
    return max(range(len(running)), key=lambda at: (running[at].priority, running[at].arrival_time))


def schedule_running(state: SchedulerState, plan: StepPlan) -> None:
    """Schedule running requests in order while there is budget, and skip those with nothing to compute.

    Most requests get one token in a block that they have. The loop handles these without further calls, because they
    decide the speed of a step.
    """
    scheduled, requests, cached = plan.num_scheduled_tokens, plan.requests, plan.cached
    for request in tuple(state.running):
        if plan.token_budget <= 0:
            return
        computed = request.num_computed_tokens
        unknown = len(request.all_token_ids) + request.num_output_placeholders - computed
        if unknown == 1 and computed < request.fast_path_until:
            scheduled[request.request_id] = 1
            requests.append(request)
            cached.append(CachedRequestData(request.request_id, False, (), computed))
            plan.token_budget -= 1
        elif not _schedule_one(state, plan, request):
            return


def _schedule_one(state: SchedulerState, plan: StepPlan, request: RequestState) -> bool:
    """Schedule one request. Return whether others may follow: not after it was preempted itself."""
    if request.status is not RequestStatus.RUNNING:
        return True
    num_new_tokens = _num_new_tokens(state, request, plan.token_budget)
    computed, drafts = request.num_computed_tokens, state.constants.use_spec_decode
    encoder = plan_encoder(state.encoder_cache, drafts, request, computed, num_new_tokens, plan.encoder_budget)
    num_new_tokens = encoder.num_new_tokens
    if num_new_tokens <= 0:
        return True
    block_ids = _allocate(state, plan, request, num_new_tokens)
    if block_ids is None:
        return False
    _take_drafts(plan, request, num_new_tokens)
    plan.prefills |= request.is_prefill_chunk
    plan.add(request, num_new_tokens)
    plan.add_encoder_inputs(state.encoder_cache, request, encoder)
    plan.cached.append(CachedRequestData(request.request_id, False, block_ids, computed))
    request.fast_path_until = fast_path_until(state.constants, request, computed + num_new_tokens)
    return True


def _num_new_tokens(state: SchedulerState, request: RequestState, budget: int) -> int:
    constants = state.constants
    placeholders = request.num_output_placeholders
    computed = request.num_computed_tokens
    if placeholders:
        least = computed + 2 - placeholders  # the tokens that steps in flight reach even if they reject all drafts
        if request.structured_output is not None or least >= request.num_prompt_tokens + request.max_tokens:
            return 0
    num_new_tokens = request.num_tokens_with_spec + placeholders - computed
    num_new_tokens = under_threshold(state, num_new_tokens)
    return min(num_new_tokens, budget, longest_input(constants, request) - computed)


def _allocate(
    state: SchedulerState, plan: StepPlan, request: RequestState, num_new_tokens: int
) -> Sequence[int] | None:
    """Allocate blocks, preempting others if necessary; ``None`` if the request itself was preempted.

    The last running request gets no lookahead for drafts when blocks are short. Otherwise it could be preempted again
    and again, each time just before its next token.
    """
    lookahead = state.constants.num_spec_tokens
    while True:
        block_ids = state.kv_cache.allocate_slots(request, num_new_tokens, num_lookahead_tokens=lookahead)
        if block_ids is not None:
            return block_ids
        if lookahead and len(state.running) == 1:
            lookahead = 0
        elif preempt_one(state, plan) is request:
            return None


def _take_drafts(plan: StepPlan, request: RequestState, num_new_tokens: int) -> None:
    """Schedule as many drafts as fit; drop the others."""
    if not request.spec_token_ids:
        return
    num_drafts = num_new_tokens + request.num_computed_tokens - request.num_tokens - request.num_output_placeholders
    if num_drafts > 0:
        plan.spec_tokens[request.request_id] = request.spec_token_ids[:num_drafts]
    request.spec_token_ids = []


def fast_path_until(constants: SchedulerConstants, request: RequestState, computed: int) -> int:
    """The count of computed tokens below which one more needs no block, fills none, and reaches no limit."""
    size = constants.block_size
    filled = computed % size
    if not filled or constants.num_spec_tokens or request.mm_inputs:
        return 0
    if request.structured_output is not None and constants.async_scheduling:
        return 0
    last_place = computed - filled + size - 1
    return min(last_place, constants.max_model_len - 1, len(request.prompt_token_ids) + request.max_tokens - 1)


def num_steady_steps(state: SchedulerState, most: int) -> int:
    """The number of steady steps to come, at most ``most``. Each of them is followed by another step.

    The caller ensures that every step in flight computes one token of each running request.
    """
    if state.waiting or state.paused or state.finished or state.connector or state.encoder_cache.in_use:
        return 0
    if state.kv_cache.publishes_events:
        return 0
    count = most if state.running else 0
    for request in state.running:
        count = min(count, _until_end(state, request))
        if count <= 0:
            return 0
    free = state.kv_cache.num_free_blocks
    if free >= len(state.running) * (count // state.constants.block_size + 1):
        return count  # at most so many are missing
    while count > 0 and _num_missing_blocks(state, count) > free:
        count //= 2
    return count


def usage_after(state: SchedulerState, count: int) -> float:
    """The share of blocks in use after ``count`` steady steps, 0 to 1."""
    kv_cache = state.kv_cache
    return kv_cache.usage_with(_num_missing_blocks(state, count)) if count else kv_cache.usage


def pass_steady_steps(state: SchedulerState, count: int, token: int) -> None:
    """Carry out ``count`` steady steps, in which every request gets ``token``.

    Afterwards, as many steps as before are in flight.
    """
    running, constants = state.running, state.constants
    before = [(len(request.all_token_ids), request.num_computed_tokens) for request in running]
    changes: list[tuple[int, bool, int]] = []
    for index, request in enumerate(running):
        _note_changes(changes, request, index, constants.block_size, count)
    changes.sort()
    for step, is_plan, index in changes:
        request, (known, computed) = running[index], before[index]
        _append(request, known + step, token)
        if is_plan:
            request.num_computed_tokens = computed + step - 1
            blocks = state.kv_cache.allocate_slots(request, 1)
            assert blocks is not None, "num_steady_steps counted the free blocks"
        else:
            state.kv_cache.cache_blocks(request, computed + step - request.num_output_placeholders)
    for request, (known, computed) in zip(running, before, strict=True):
        _append(request, known + count, token)
        request.num_computed_tokens = computed = computed + count
        if computed >= request.fast_path_until:
            request.fast_path_until = fast_path_until(constants, request, computed)
    state.in_flight = {step + count: output.later(count) for step, output in state.in_flight.items()}
    state.next_step += count


def _until_end(state: SchedulerState, request: RequestState) -> int:
    """The steps until the request ends, or until a plan leaves it out because steps in flight end it."""
    if request.ending_tokens or request.pooling or request.structured_output is not None or request.mm_inputs:
        return 0
    computed, placeholders = request.num_computed_tokens, request.num_output_placeholders
    count = min(
        request.max_num_tokens - 1 - len(request.all_token_ids), longest_input(state.constants, request) - computed
    )
    if placeholders:
        count = min(count, request.num_prompt_tokens + request.max_tokens - 3 + placeholders - computed)
    return count


def _num_missing_blocks(state: SchedulerState, count: int) -> int:
    """The blocks that ``count`` steady steps will take."""
    kv_cache = state.kv_cache
    return sum(
        kv_cache.num_missing_blocks(request.request_id, request.num_computed_tokens + count)
        for request in state.running
    )


def _note_changes(
    changes: list[tuple[int, bool, int]], request: RequestState, index: int, size: int, count: int
) -> None:
    """Add the changes of a request's blocks: the step, whether the plan after its end changes them, and ``index``.

    A plan needs another block after each full one. A block can be found when its tokens are known: at the end of a step
    if its tokens were planned ahead, else with the next plan.
    """
    computed, placeholders = request.num_computed_tokens, request.num_output_placeholders
    step = -computed % size + 1
    while step <= count:
        changes.append((step, True, index))
        step += size
    step = (placeholders - computed) % size or size
    while step <= count:
        changes.append((step, not placeholders, index))
        step += size


def _append(request: RequestState, num_tokens: int, token: int) -> None:
    more = [token] * (num_tokens - len(request.all_token_ids))
    request.all_token_ids += more
    request.output_token_ids += more
