"""Taking in what a step sampled, request by request: nothing here concerns two requests.

That makes it possible to do it in several threads, each with its part of the batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from enginehouse_sim.scheduler.output import EngineCoreOutput, ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.scheduler.request import RequestState, RequestStatus
from enginehouse_sim.scheduler.state import SchedulerState
from enginehouse_sim.scheduler.stop_conditions import append_until_stop


class Advanced(msgspec.Struct):
    """What clients get, by ``client_index``, and which requests (with their outputs) need more than their own state.

    ``ended``: they stopped. ``constrained``: their grammars have to follow. ``filled``: tokens that were only expected
    when their step was planned have filled a block.
    """

    outputs: dict[int, list[EngineCoreOutput]] = {}
    ended: list[tuple[RequestState, EngineCoreOutput]] = []
    constrained: list[tuple[RequestState, EngineCoreOutput]] = []
    filled: list[RequestState] = []
    num_drafts: int = 0
    num_accepted: int = 0


class Advance(Protocol):
    """One way to go through a batch."""

    def __call__(self, state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput) -> Advanced:
        """Append, check for stops, and make outputs; requests that ended meanwhile are passed over."""


class ParallelAdvance:
    """Each of ``workers`` threads goes through its part of the batch; the parts are put together in their order."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="advance")

    def __call__(self, state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput) -> Advanced:
        """As ``advance`` does it."""
        request_ids = tuple(step.num_scheduled_tokens)
        size = max(1, -(-len(request_ids) // self._workers))
        parts = [request_ids[start : start + size] for start in range(0, len(request_ids), size)]
        whole = Advanced()
        for part in self._pool.map(lambda ids: _advance_part(ids, state, step, result), parts):
            _join(whole, part)
        return whole

    def shutdown(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def advance(state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput) -> Advanced:
    """The whole batch, one request after the other."""
    return _advance_part(step.num_scheduled_tokens, state, step, result)


def _join(whole: Advanced, part: Advanced) -> None:
    for client_index, outputs in part.outputs.items():
        whole.outputs.setdefault(client_index, []).extend(outputs)
    whole.ended.extend(part.ended)
    whole.constrained.extend(part.constrained)
    whole.filled.extend(part.filled)
    whole.num_drafts += part.num_drafts
    whole.num_accepted += part.num_accepted


def _advance_part(
    request_ids: Iterable[str], state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput
) -> Advanced:
    requests, logprobs = state.requests, result.logprobs
    index, sampled = result.req_id_to_index, result.sampled_token_ids
    drafts_of = step.scheduled_spec_decode_tokens
    advanced = Advanced()
    outputs = advanced.outputs
    for request_id in request_ids:
        request = requests.get(request_id)
        if request is None:
            continue
        row = index[request_id]
        token_ids = sampled[row]
        stopped = False
        if token_ids:
            if request_id in drafts_of:
                _take_back(advanced, request, len(drafts_of[request_id]), len(token_ids) - 1)
            elif request.num_output_placeholders:
                _expect_less(advanced, state, request)
            token_ids, stopped = append_until_stop(request, token_ids)
            output = EngineCoreOutput(request_id, token_ids, num_cached_tokens=request.num_cached_tokens)
            if logprobs is not None:
                output.new_logprobs = logprobs[row][: len(token_ids)]
        elif request.pooling and request_id in result.pooler_output:
            request.status, stopped = RequestStatus.FINISHED_STOPPED, True
            output = EngineCoreOutput(request_id, (), pooling_output=result.pooler_output[request_id])
        else:
            continue
        if stopped:
            advanced.ended.append((request, output))
        elif request.structured_output is not None:
            advanced.constrained.append((request, output))
        if request.client_index in outputs:
            outputs[request.client_index].append(output)
        else:
            outputs[request.client_index] = [output]
    return advanced


def _take_back(advanced: Advanced, request: RequestState, num_drafts: int, num_accepted: int) -> None:
    """Rejected drafts do not count as computed; a request that lost its blocks meanwhile has nothing to take back."""
    advanced.num_drafts += num_drafts
    advanced.num_accepted += num_accepted
    if request.num_computed_tokens:
        request.num_computed_tokens -= num_drafts - num_accepted


def _expect_less(advanced: Advanced, state: SchedulerState, request: RequestState) -> None:
    """A token that was expected is there."""
    request.num_output_placeholders -= 1
    if (request.num_computed_tokens - request.num_output_placeholders) % state.constants.block_size == 0:
        advanced.filled.append(request)
