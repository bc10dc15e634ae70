"""Taking in the outcome of a step: requests go on or end, blocks are freed, clients are told."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse_sim.scheduler.advance import Advance, Advanced
from enginehouse_sim.scheduler.finishing import let_go
from enginehouse_sim.scheduler.output import (
    EngineCoreOutput,
    EngineCoreOutputs,
    ModelRunnerOutput,
    SchedulerOutput,
    SchedulerStats,
)
from enginehouse_sim.scheduler.request import FINISH_REASONS, RequestState, RequestStatus
from enginehouse_sim.scheduler.state import SchedulerState

_Ended = Sequence[tuple[RequestState, EngineCoreOutput]]


def take_in(
    state: SchedulerState, advance: Advance, step: SchedulerOutput, result: ModelRunnerOutput
) -> dict[int, EngineCoreOutputs]:
    """What each client is to be told, by ``client_index``."""
    state.in_flight.pop(step.step, None)
    advanced = advance(state, step, result)
    state.totals.num_draft_tokens += advanced.num_drafts
    state.totals.num_accepted_tokens += advanced.num_accepted
    for request_id, count in result.num_nans_in_logits.items():
        if request_id in state.requests:
            state.requests[request_id].num_nans_in_logits = count
    for request in advanced.filled:
        state.kv_cache.cache_blocks(request, request.num_computed_tokens - request.num_output_placeholders)
    _end(state, [*advanced.ended, *_off_grammar(state, advanced)])
    _take_new_drafts(state, result)
    if state.connector is not None:
        state.connector.update_connector_output(result)
    state.transfers.update(result)
    return _by_client(state, advanced)


def _off_grammar(state: SchedulerState, advanced: Advanced) -> _Ended:
    """Let grammars follow their requests; those that cannot end alone."""
    grammars = state.grammars
    if grammars is None:
        return ()
    lost = []
    for request, output in advanced.constrained:
        if grammars.should_advance(request) and not grammars.accept_tokens(request, output.new_token_ids):
            request.status = RequestStatus.FINISHED_ABORTED
            request.stop_reason = "the grammar does not allow these tokens"
            lost.append((request, output))
    return lost


def _end(state: SchedulerState, ended: _Ended) -> None:
    if not ended:
        return
    for request, output in ended:
        output.finish_reason = FINISH_REASONS[request.status]
        output.stop_reason = request.stop_reason
        output.kv_transfer_params = let_go(state, request)
    forget(state, [request for request, _ in ended])


def forget(state: SchedulerState, requests: Sequence[RequestState]) -> None:
    """Take requests that ended off whatever list they are on."""
    num_running = len(state.running)
    state.running = [request for request in state.running if request.status is RequestStatus.RUNNING]
    if num_running - len(state.running) == len(requests):
        return
    for request in requests:
        state.paused.pop(request.request_id, None)
    state.staging.remove({request.request_id for request in requests})


def _take_new_drafts(state: SchedulerState, result: ModelRunnerOutput) -> None:
    """Drafts are for a request that only lacks its next token: its prompt is read, and no step of it is under way."""
    if result.spec_token_ids is None:
        return
    for request_id, drafts in zip(result.req_ids, result.spec_token_ids, strict=True):
        request = state.requests.get(request_id)
        if request is None or request.num_computed_tokens != request.num_tokens - 1:
            continue
        if request.structured_output is not None and state.grammars is not None:
            drafts = state.grammars.validate_tokens(request, drafts)
        request.spec_token_ids = list(drafts[: state.constants.num_spec_tokens])


def _by_client(state: SchedulerState, advanced: Advanced) -> dict[int, EngineCoreOutputs]:
    for client_index, output in state.endings.take_owed():
        advanced.outputs.setdefault(client_index, []).append(output)
    told = {client_index: EngineCoreOutputs(outputs) for client_index, outputs in advanced.outputs.items()}
    for client_index, finished in state.endings.take_by_client().items():
        told.setdefault(client_index, EngineCoreOutputs()).finished_requests = finished
    if state.constants.log_stats:
        first = next(iter(told), 0)
        told.setdefault(first, EngineCoreOutputs()).scheduler_stats = stats(state)
    return told


def stats(state: SchedulerState) -> SchedulerStats:
    """The figures as they are now."""
    totals = state.totals
    return SchedulerStats(
        num_running_reqs=len(state.running),
        num_waiting_reqs=len(state.staging) + len(state.paused),
        kv_cache_usage=state.kv_cache.usage,
        prefix_cache_queries=totals.prefix_cache_queries,
        prefix_cache_hits=totals.prefix_cache_hits,
        external_cache_queries=totals.external_cache_queries,
        external_cache_hits=totals.external_cache_hits,
        num_preemptions=totals.num_preemptions,
        num_draft_tokens=totals.num_draft_tokens,
        num_accepted_tokens=totals.num_accepted_tokens,
    )
