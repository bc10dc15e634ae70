"""The scheduler with vLLM's semantics: it plans steps, and processes their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse_sim.options import SchedulerConstants
from enginehouse_sim.simulator.domain.outputs import (
    PADDING_DRAFT,
    EngineCoreOutput,
    ModelRunnerOutput,
    SchedulerOutput,
)
from enginehouse_sim.simulator.domain.request import FINISH_REASONS, RequestState, RequestStatus
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import KvConnector
from enginehouse_sim.simulator.model.grammar import GrammarManager
from enginehouse_sim.simulator.scheduler.running import schedule_running
from enginehouse_sim.simulator.scheduler.state import SchedulerState, StepPlan, free_request
from enginehouse_sim.simulator.scheduler.waiting import schedule_waiting


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
    asked = request.asked
    if last_token == asked.eos_token_id and not asked.ignore_eos:
        return RequestStatus.FINISHED_STOPPED
    if last_token in asked.stop_token_ids:
        request.stop_reason = last_token
        return RequestStatus.FINISHED_STOPPED
    return RequestStatus.FINISHED_LENGTH_CAPPED if len(request.all_token_ids) >= request.max_num_tokens else None


_Outputs = list[tuple[RequestState, EngineCoreOutput]]


def _reject_drafts(state: SchedulerState, request: RequestState, num_drafts: int, num_accepted: int) -> None:
    """Take rejected drafts out of the computed tokens, unless the request's blocks were freed meanwhile."""
    state.totals.spec_decode_num_draft_tokens += num_drafts
    state.totals.spec_decode_num_accepted_tokens += num_accepted
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


_NO_ROWS: tuple[Mapping[str, int], None] = ({}, None)


def step_output(state: SchedulerState, plan: StepPlan) -> SchedulerOutput:
    """The output for ``plan``. The connector's metadata is added last, as in vLLM."""
    rows, bitmask = _grammar_rows(state, plan)
    finished, state.finished = tuple(state.finished), []
    output = SchedulerOutput(
        step=plan.step,
        new_requests=plan.new,
        cached_requests=plan.cached + plan.resumed,
        num_scheduled_tokens=plan.num_scheduled_tokens,
        total_num_scheduled_tokens=sum(plan.num_scheduled_tokens.values()),
        scheduled_spec_decode_tokens=plan.spec_tokens,
        scheduled_encoder_inputs=plan.encoder_inputs,
        finished_req_ids=finished,
        preempted_req_ids=plan.preempted,
        structured_output_request_ids=rows,
        grammar_bitmask=bitmask,
    )
    if state.connector is not None:
        output.kv_connector_metadata = state.connector.build_connector_metadata(output)
    return output


def advance_computed(state: SchedulerState, plan: StepPlan) -> None:
    """Count the step as computed, so that the next one can be planned before its result is known."""
    for request, num_tokens in zip(plan.requests, plan.num_scheduled_tokens.values(), strict=True):
        request.num_computed_tokens += num_tokens
    if state.tracks_prefills:
        for request in plan.requests:
            known = request.num_tokens + request.num_output_placeholders
            request.is_prefill_chunk = request.num_computed_tokens < known
    if state.plans_ahead:
        _expect_tokens(state, plan)


def _expect_tokens(state: SchedulerState, plan: StepPlan) -> None:
    """Count the tokens that the step will sample, and the drafts that the model runner will make after them."""
    drafts = [PADDING_DRAFT] * state.constants.num_spec_tokens
    for request in plan.requests:
        if request.num_computed_tokens < len(request.all_token_ids) + request.num_output_placeholders:
            continue
        request.num_output_placeholders += 1
        if drafts:
            request.num_output_placeholders += len(plan.spec_tokens.get(request.request_id, ()))
            request.spec_token_ids = drafts if request.structured_output is None else []


def _grammar_rows(state: SchedulerState, plan: StepPlan) -> tuple[Mapping[str, int], Sequence[frozenset[int]] | None]:
    """Rows for the requests that sample under a grammar, in vLLM's order: new, running, resumed."""
    if state.grammars is None:
        return _NO_ROWS
    sampling = [
        request
        for request in plan.requests
        if request.structured_output is not None
        and request.num_computed_tokens + plan.num_scheduled_tokens[request.request_id] >= request.num_tokens
    ]
    if not sampling:
        return _NO_ROWS
    new = {data.request_id for data in plan.new}
    resumed = {data.request_id for data in plan.resumed}
    sampling.sort(key=lambda request: 0 if request.request_id in new else 2 if request.request_id in resumed else 1)
    drafts = {request_id: each for request_id, each in plan.spec_tokens.items() if each[0] != PADDING_DRAFT}
    return state.grammars.grammar_bitmask(sampling, drafts)


class BatchScheduler:
    """Continuous batching: running requests continue, and waiting requests get the rest of the budget."""

    def __init__(
        self,
        constants: SchedulerConstants,
        kv_cache: KvCacheManager,
        connector: KvConnector | None = None,
        grammars: GrammarManager | None = None,
    ) -> None:
        self.state = SchedulerState(constants, kv_cache, connector, grammars)

    def add_request(self, request: RequestState) -> None:
        """Put a request into the waiting queue. Raises ``ValueError`` for an id in use."""
        state = self.state
        if request.request_id in state.requests:
            raise ValueError(f"request {request.request_id!r} exists already: give each request an id of its own")
        longest = request.num_prompt_tokens + request.max_tokens
        request.max_num_tokens = min(longest, state.constants.max_model_len)
        if request.structured_output is not None and state.grammars is not None:
            request.status = RequestStatus.WAITING_FOR_FSM
        state.requests[request.request_id] = request
        state.waiting.add(request)

    def schedule(self) -> SchedulerOutput:
        """Plan the next step. The outcome of the previous one need not be known."""
        state = self.state
        constants = state.constants
        plan = StepPlan(state.next_step, constants.max_num_batched_tokens, constants.max_num_encoder_input_tokens)
        schedule_running(state, plan)
        schedule_waiting(state, plan)
        output = step_output(state, plan)
        state.kv_cache.publish_events()
        advance_computed(state, plan)
        state.in_flight[plan.step] = output
        state.next_step += 1
        return output

    def update_from_output(self, step: SchedulerOutput, result: ModelRunnerOutput) -> Sequence[EngineCoreOutput]:
        """Process the result of a step, in the order of planning. Return the outputs for the clients.

        Requests that finished meanwhile are ignored.
        """
        state = self.state
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

    def finish_requests(
        self, request_ids: Sequence[str], status: RequestStatus = RequestStatus.FINISHED_ABORTED
    ) -> None:
        """Finish requests in any state, without outputs for their clients. Unknown ids are ignored."""
        requests = self.state.requests
        ending = [requests[request_id] for request_id in dict.fromkeys(request_ids) if request_id in requests]
        for request in ending:
            request.status = status
        remove_finished(self.state, ending)
        for request in ending:
            free_request(self.state, request)

    def pause(self, request_id: str, *, keep_blocks: bool) -> None:
        """Take a running request out of the batch until ``resume``. A step in flight still adds its tokens.

        Without its blocks, it must be admitted again. Raises ``ValueError`` if it is not running.
        """
        state = self.state
        request = state.requests.get(request_id)
        if request is None or request.status is not RequestStatus.RUNNING:
            raise ValueError(f"request {request_id!r} is not running: only running requests can be paused")
        state.running.remove(request)
        request.status = RequestStatus.PAUSED
        state.paused[request_id] = request
        if not keep_blocks:
            state.free_blocks(request)

    def drop_blocks(self, request_id: str) -> None:
        """Free the blocks of a paused request."""
        self.state.free_blocks(self.state.paused[request_id])

    def resume(self, request_id: str) -> bool:
        """Resume a paused request: in the batch if it kept its blocks, else at the head of the waiting queue.

        Return ``False``, and do nothing, if it kept its blocks and ``max_num_seqs`` requests run. Raises ``ValueError``
        if it is not paused.
        """
        state = self.state
        request = state.paused.get(request_id)
        if request is None:
            raise ValueError(f"request {request_id!r} is not paused: only paused requests can be resumed")
        holds_blocks = request.num_computed_tokens > 0
        if holds_blocks and len(state.running) >= state.constants.max_num_seqs:
            return False
        del state.paused[request_id]
        if holds_blocks:
            request.status = RequestStatus.RUNNING
            later = (at for at, other in enumerate(state.running) if other.arrival_time > request.arrival_time)
            state.running.insert(next(later, len(state.running)), request)  # the last one is preempted first
        else:
            request.status = RequestStatus.PREEMPTED
            state.waiting.put_back(request)
        return True

    def has_finished_requests(self) -> bool:
        """Whether the model runner does not know yet that some request has finished."""
        return bool(self.state.finished)

    def reset_prefix_cache(self) -> bool:
        return self.state.kv_cache.reset_prefix_cache()

    def shutdown(self) -> None:
        self.finish_requests(tuple(self.state.requests))
        for request in self.state.kept.values():
            self.state.kv_cache.free(request)
        self.state.kept.clear()
