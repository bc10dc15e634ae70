"""Applies the sampled tokens of a step, request by request.

No two requests depend on each other here, so several threads can each take a part of the batch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput, ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.stop_conditions import append_until_stop


class BatchUpdate(msgspec.Struct):
    """The outputs by ``client_index``, and the requests that need more than their own state.

    ``ended``: the requests that stopped. ``constrained``: those whose grammars must accept the new tokens. ``filled``:
    those with placeholders that became tokens and so filled a block.
    """

    outputs: defaultdict[int, list[EngineCoreOutput]] = msgspec.field(default_factory=lambda: defaultdict(list))
    ended: list[tuple[RequestState, EngineCoreOutput]] = []
    constrained: list[tuple[RequestState, EngineCoreOutput]] = []
    filled: list[RequestState] = []
    num_drafts: int = 0
    num_accepted: int = 0


class BatchUpdater(Protocol):
    """One way to go through a batch. Requests that finished meanwhile are ignored."""

    def __call__(self, state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput) -> BatchUpdate: ...


class ParallelBatchUpdate:
    """Splits the batch among ``workers`` threads, and joins the parts in order.

    Slower than one thread on an interpreter with a global lock; see the README for measurements.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="update_batch")

    def __call__(self, state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput) -> BatchUpdate:
        request_ids = tuple(step.num_scheduled_tokens)
        size = max(1, -(-len(request_ids) // self._workers))
        parts = [request_ids[start : start + size] for start in range(0, len(request_ids), size)]
        whole = BatchUpdate()
        for part in self._pool.map(lambda ids: _update_part(ids, state, step, result), parts):
            _join(whole, part)
        return whole

    def shutdown(self) -> None:
        self._pool.shutdown()


def update_batch(state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput) -> BatchUpdate:
    """Update the whole batch in the caller's thread."""
    return _update_part(step.num_scheduled_tokens, state, step, result)


def _join(whole: BatchUpdate, part: BatchUpdate) -> None:
    for client_index, outputs in part.outputs.items():
        whole.outputs[client_index].extend(outputs)
    whole.ended.extend(part.ended)
    whole.constrained.extend(part.constrained)
    whole.filled.extend(part.filled)
    whole.num_drafts += part.num_drafts
    whole.num_accepted += part.num_accepted


def _update_part(
    request_ids: Iterable[str], state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput
) -> BatchUpdate:
    requests, logprobs = state.requests, result.logprobs
    index, sampled = result.req_id_to_index, result.sampled_token_ids
    drafts_of = step.scheduled_spec_decode_tokens
    update = BatchUpdate()
    for request_id in request_ids:
        request = requests.get(request_id)
        if request is None:
            continue
        row = index[request_id]
        token_ids = sampled[row]
        stopped = False
        if token_ids:
            if request_id in drafts_of:
                _reject_drafts(update, request, len(drafts_of[request_id]), len(token_ids) - 1)
            has_room = len(request.all_token_ids) + 1 < request.max_num_tokens
            if has_room and len(token_ids) == 1 and not request.ending_tokens:
                request.append(token_ids[0])
            else:
                token_ids, stopped = append_until_stop(request, token_ids)
            if request.num_output_placeholders:
                _fill_placeholders(update, state, request, len(token_ids))
            output = EngineCoreOutput(request_id, token_ids, num_cached_tokens=request.num_cached_tokens)
            if logprobs is not None:
                output.new_logprobs = logprobs[row][: len(token_ids)]
        elif request.pooling and request_id in result.pooler_output:
            request.status, stopped = RequestStatus.FINISHED_STOPPED, True
            output = EngineCoreOutput(request_id, (), pooling_output=result.pooler_output[request_id])
        else:
            continue
        if stopped:
            update.ended.append((request, output))
        elif request.structured_output is not None:
            update.constrained.append((request, output))
        update.outputs[request.client_index].append(output)
    return update


def _reject_drafts(update: BatchUpdate, request: RequestState, num_drafts: int, num_accepted: int) -> None:
    """Take rejected drafts out of the computed tokens, unless the request's blocks were freed meanwhile."""
    update.num_drafts += num_drafts
    update.num_accepted += num_accepted
    if request.num_computed_tokens:
        request.num_computed_tokens -= num_drafts - num_accepted
    if request.num_output_placeholders:
        request.num_output_placeholders -= num_drafts - num_accepted


def _fill_placeholders(update: BatchUpdate, state: SchedulerState, request: RequestState, num_tokens: int) -> None:
    """Note that expected tokens have arrived, and whether they fill a block."""
    request.num_output_placeholders -= num_tokens
    known = request.num_computed_tokens - request.num_output_placeholders
    if known % state.constants.block_size < num_tokens:
        update.filled.append(request)
