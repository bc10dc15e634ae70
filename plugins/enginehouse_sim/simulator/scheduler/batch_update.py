"""Applies the sampled tokens of a step, request by request. No two requests depend on each other here."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.domain.steps import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.stop_conditions import append_until_stop


class BatchUpdate:
    """The outputs, and the requests that need more than their own state.

    ``ended``: the requests that stopped. ``constrained``: those whose grammars must accept the new tokens. ``filled``:
    those with placeholders that became tokens and so filled a block.
    """

    __slots__ = ("constrained", "ended", "filled", "num_accepted", "num_drafts", "outputs")

    def __init__(self) -> None:
        self.outputs: list[EngineCoreOutput] = []
        self.ended: list[tuple[RequestState, EngineCoreOutput]] = []
        self.constrained: list[tuple[RequestState, EngineCoreOutput]] = []
        self.filled: list[RequestState] = []
        self.num_drafts = 0
        self.num_accepted = 0


def update_batch(state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput) -> BatchUpdate:
    """Append the sampled tokens. Requests that finished meanwhile are ignored."""
    requests, logprobs = state.requests, result.logprobs
    index, sampled = result.req_id_to_index, result.sampled_token_ids
    drafts_of, block_size = step.scheduled_spec_decode_tokens, state.constants.block_size
    update = BatchUpdate()
    for request_id in step.num_scheduled_tokens:
        request = requests.get(request_id)
        if request is None:
            continue
        row = index[request_id]
        token_ids = sampled[row]
        stopped = False
        if token_ids:
            if request_id in drafts_of:
                _reject_drafts(update, request, len(drafts_of[request_id]), len(token_ids) - 1)
            all_ids = request.all_token_ids
            if len(all_ids) + 1 < request.max_num_tokens and len(token_ids) == 1 and not request.ending_tokens:
                all_ids += token_ids
                request.output_token_ids += token_ids
            else:
                token_ids, stopped = append_until_stop(request, token_ids)
            if placeholders := request.num_output_placeholders:
                request.num_output_placeholders = placeholders = placeholders - len(token_ids)
                if (request.num_computed_tokens - placeholders) % block_size < len(token_ids):
                    update.filled.append(request)
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
        update.outputs.append(output)
    return update


def _reject_drafts(update: BatchUpdate, request: RequestState, num_drafts: int, num_accepted: int) -> None:
    """Take rejected drafts out of the computed tokens, unless the request's blocks were freed meanwhile."""
    update.num_drafts += num_drafts
    update.num_accepted += num_accepted
    if request.num_computed_tokens:
        request.num_computed_tokens -= num_drafts - num_accepted
    if request.num_output_placeholders:
        request.num_output_placeholders -= num_drafts - num_accepted
