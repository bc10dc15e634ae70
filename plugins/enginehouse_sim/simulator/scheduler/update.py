"""Processes the result of a step: appends tokens, frees finished requests, and makes outputs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from enginehouse_sim.simulator.domain.outputs import (
    EngineCoreOutput,
    ModelRunnerOutput,
    SchedulerOutput,
    SchedulerStats,
)
from enginehouse_sim.simulator.domain.request import FINISH_REASONS, RequestState, RequestStatus
from enginehouse_sim.simulator.scheduler.state import SchedulerState, free_request


def append_until_stop(request: RequestState, token_ids: Sequence[int]) -> tuple[Sequence[int], bool]:
    """Append tokens until a stop condition holds. Return the appended tokens, and whether the request stopped."""
    for position, token in enumerate(token_ids, 1):
        request.append(token)
        if len(request.all_token_ids) >= request.max_num_tokens or token in request.ending_tokens:
            status = stop_status(request, token)
            if status is not None:
                request.status = status
                return token_ids[:position], True
    return token_ids, False


def stop_status(request: RequestState, last_token: int) -> RequestStatus | None:
    """The final status if ``last_token``, already appended, finishes the request, else ``None``.

    A stop token that is also the last allowed token stops the request. The sampler keeps ``min_tokens``.
    """
    if last_token == request.eos_token_id and not request.ignore_eos:
        return RequestStatus.FINISHED_STOPPED
    if last_token in request.stop_token_ids:
        request.stop_reason = last_token
        return RequestStatus.FINISHED_STOPPED
    return RequestStatus.FINISHED_LENGTH_CAPPED if len(request.all_token_ids) >= request.max_num_tokens else None


_Outputs = list[tuple[RequestState, EngineCoreOutput]]


def update_from_output(
    state: SchedulerState, step: SchedulerOutput, result: ModelRunnerOutput
) -> list[EngineCoreOutput]:
    """The outputs for the clients; vLLM's ``update_from_output``. Requests that finished meanwhile are ignored."""
    state.in_flight.pop(step.step, None)
    requests, logprobs = state.requests, result.logprobs
    index, sampled = result.req_id_to_index, result.sampled_token_ids
    drafts_of, block_size = step.scheduled_spec_decode_tokens, state.constants.block_size
    outputs: list[EngineCoreOutput] = []
    ended: _Outputs = []
    constrained: _Outputs = []  # their grammars must accept the new tokens
    filled: list[RequestState] = []  # placeholders became tokens and so filled a block
    for request_id in step.num_scheduled_tokens:
        request = requests.get(request_id)
        if request is None:
            continue
        row = index[request_id]
        token_ids = sampled[row]
        stopped = False
        if token_ids:
            if request_id in drafts_of:
                _reject_drafts(state, request, len(drafts_of[request_id]), len(token_ids) - 1)
            all_ids = request.all_token_ids
            if len(all_ids) + 1 < request.max_num_tokens and len(token_ids) == 1 and not request.ending_tokens:
                all_ids += token_ids
                request.output_token_ids += token_ids
            else:
                token_ids, stopped = append_until_stop(request, token_ids)
            if placeholders := request.num_output_placeholders:
                request.num_output_placeholders = placeholders = placeholders - len(token_ids)
                if (request.num_computed_tokens - placeholders) % block_size < len(token_ids):
                    filled.append(request)
            output = EngineCoreOutput(request_id, token_ids, num_cached_tokens=request.num_cached_tokens)
            if logprobs is not None:
                output.new_logprobs = logprobs[row][: len(token_ids)]
        elif request.pooling and request_id in result.pooler_output:
            request.status, stopped = RequestStatus.FINISHED_STOPPED, True
            output = EngineCoreOutput(request_id, (), pooling_output=result.pooler_output[request_id])
        else:
            continue
        if stopped:
            ended.append((request, output))
        elif request.structured_output is not None:
            constrained.append((request, output))
        outputs.append(output)
    _release_images(state, step)
    for request in filled:
        state.kv_cache.cache_blocks(request, request.num_computed_tokens - request.num_output_placeholders)
    _end(state, ended + _rejected_by_grammar(state, constrained))
    _take_new_drafts(state, result)
    if state.connector is not None:
        state.connector.update_connector_output(result)
    for request_id in (*result.kv_connector_finished_recving, *result.kv_connector_finished_sending):
        kept = state.kept.pop(request_id, None)
        if kept is not None:
            state.kv_cache.free(kept)
    state.loading.difference_update(result.kv_connector_finished_recving)
    outside, state.finished_outputs = state.finished_outputs, []
    return outputs + outside


def _reject_drafts(state: SchedulerState, request: RequestState, num_drafts: int, num_accepted: int) -> None:
    """Take rejected drafts out of the computed tokens, unless the request's blocks were freed meanwhile."""
    state.totals.num_draft_tokens += num_drafts
    state.totals.num_accepted_tokens += num_accepted
    if request.num_computed_tokens:
        request.num_computed_tokens -= num_drafts - num_accepted
    if request.num_output_placeholders:
        request.num_output_placeholders -= num_drafts - num_accepted


def _release_images(state: SchedulerState, step: SchedulerOutput) -> None:
    """Release the images that the step computed to their ends, unless drafts may still be rejected there."""
    cache, constants = state.encoder_cache, state.constants
    if not cache.in_use:
        return
    for request_id in step.num_scheduled_tokens:
        request = state.requests.get(request_id)
        if request is not None and request.mm_inputs:
            unsure = request.num_output_placeholders + constants.use_spec_decode
            cache.release_computed(request, request.num_computed_tokens - unsure)


def _rejected_by_grammar(state: SchedulerState, constrained: _Outputs) -> _Outputs:
    """Advance the grammars. Return the requests whose tokens they do not allow: only these finish."""
    grammars = state.grammars
    rejected: _Outputs = []
    if grammars is None:
        return rejected
    for request, output in constrained:
        if grammars.should_advance(request) and not grammars.accept_tokens(request, output.new_token_ids):
            request.status = RequestStatus.FINISHED_ABORTED
            request.stop_reason = "the grammar does not allow these tokens"
            rejected.append((request, output))
    return rejected


def _end(state: SchedulerState, ended: _Outputs) -> None:
    if not ended:
        return
    for request, output in ended:
        output.finish_reason = FINISH_REASONS[request.status]
        output.stop_reason = request.stop_reason
        output.num_preemptions = request.num_preemptions
        output.kv_transfer_params = free_request(state, request)
    remove_finished(state, [request for request, _ in ended])


def remove_finished(state: SchedulerState, requests: Sequence[RequestState]) -> None:
    """Remove finished requests from the queue that each is in."""
    num_running = len(state.running)
    state.running = [request for request in state.running if request.status is RequestStatus.RUNNING]
    if num_running - len(state.running) == len(requests):
        return
    for request in requests:
        state.paused.pop(request.request_id, None)
    state.waiting.remove({request.request_id for request in requests})


def _take_new_drafts(state: SchedulerState, result: ModelRunnerOutput) -> None:
    """Keep the drafts of requests that lack only their next token: no prompt is left, and no step is in flight.

    If steps are planned ahead, the model runner keeps the drafts, except those that a grammar must check.
    """
    if result.spec_token_ids is None:
        return
    for request_id, drafts in zip(result.req_ids, result.spec_token_ids, strict=True):
        request = state.requests.get(request_id)
        if request is None or request.num_computed_tokens != request.num_tokens - 1:
            continue
        if state.plans_ahead and request.structured_output is None:
            continue
        if request.structured_output is not None and state.grammars is not None:
            drafts = state.grammars.validate_tokens(request, drafts)
        request.spec_token_ids = list(drafts[: state.constants.num_spec_tokens])


def stats(state: SchedulerState) -> SchedulerStats:
    """The totals since the start, and the current load."""
    return SchedulerStats(
        *msgspec.structs.astuple(state.totals),
        num_running_reqs=len(state.running),
        num_waiting_reqs=len(state.waiting) + len(state.paused),
        kv_cache_usage=state.kv_cache.usage,
    )
