"""Steady steps: every running request gets one more token, and none waits, arrives or ends.

Their outcome is known beforehand, so a replay carries out many of them in one call. The result is that of the single
steps, down to block ids.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.scheduler.prefill import longest_input
from enginehouse_sim.simulator.scheduler.running_phase import fast_path_until
from enginehouse_sim.simulator.scheduler.state import SchedulerState


def num_steady_steps(state: SchedulerState, most: int) -> int:
    """The number of steady steps to come, at most ``most``. Each of them is followed by another step.

    The caller ensures that every step in flight computes one token of each running request.
    """
    if state.waiting or state.paused or state.finished.has_unsent or state.connector or state.encoder_cache.in_use:
        return 0
    if state.kv_cache.publishes_events:
        return 0
    count = min((_until_end(state, request) for request in state.running), default=0)
    count = min(count, most)
    while count > 0 and _num_missing_blocks(state, count) > state.kv_cache.num_free_blocks:
        count //= 2
    return max(0, count)


def pass_steady_steps(state: SchedulerState, count: int, token: int) -> None:
    """Carry out ``count`` steady steps, in which every request gets ``token``.

    Afterwards, as many steps as before are in flight.
    """
    running = state.running
    before = [(len(request.all_token_ids), request.num_computed_tokens) for request in running]
    changes = sorted(change for index in range(len(running)) for change in _changes(state, index, count))
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
        request.num_computed_tokens = computed + count
        request.fast_path_until = fast_path_until(state.constants, request, computed + count)
    state.in_flight = {
        step + count: msgspec.structs.replace(output, step=step + count, new_requests=(), cached_requests=())
        for step, output in state.in_flight.items()
    }
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
    kv_cache = state.kv_cache
    return sum(
        kv_cache.num_missing_blocks(request.request_id, request.num_computed_tokens + count)
        for request in state.running
    )


def _changes(state: SchedulerState, index: int, count: int) -> Iterator[tuple[int, bool, int]]:
    """The changes of a request's blocks: the step, whether the plan after its end changes them, and ``index``.

    A plan needs another block after each full one. A block can be found when its tokens are known: at the end of a step
    if its tokens were planned ahead, else with the next plan.
    """
    request, size = state.running[index], state.constants.block_size
    computed, placeholders = request.num_computed_tokens, request.num_output_placeholders
    for step in range(-computed % size + 1, count + 1, size):
        yield step, True, index
    filled = (placeholders - computed) % size or size
    for step in range(filled, count + 1, size):
        yield step, not placeholders, index


def _append(request: RequestState, num_tokens: int, token: int) -> None:
    """Let the request have ``num_tokens`` tokens in all."""
    more = [token] * (num_tokens - len(request.all_token_ids))
    request.all_token_ids += more
    request.output_token_ids += more
