"""Steady steps: every running request gets one more token, and none waits, arrives or ends.

Their outcome is known beforehand, so a replay carries out many of them in one call. The result is that of the single
steps, down to block ids.
"""

from __future__ import annotations

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.scheduler.running import fast_path_until, longest_input
from enginehouse_sim.simulator.scheduler.state import SchedulerState


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
