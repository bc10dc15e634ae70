"""Makes the ``SchedulerOutput`` of a finished plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse_sim.simulator.domain.outputs import PADDING_DRAFT
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.domain.steps import SchedulerOutput
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.scheduler.step_plan import StepPlan

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
    constrained = [request for request in plan.requests if request.structured_output is not None]
    if not constrained:
        return _NO_ROWS
    scheduled = plan.num_scheduled_tokens
    sampling = [request for request in constrained if _samples(request, scheduled[request.request_id])]
    new = {data.request_id for data in plan.new}
    resumed = {data.request_id for data in plan.resumed}
    sampling.sort(key=lambda request: 0 if request.request_id in new else 2 if request.request_id in resumed else 1)
    return state.grammars.grammar_bitmask(sampling, _real_drafts(plan)) if sampling else _NO_ROWS


def _real_drafts(plan: StepPlan) -> Mapping[str, Sequence[int]]:
    return {request_id: drafts for request_id, drafts in plan.spec_tokens.items() if drafts[0] != PADDING_DRAFT}


def _samples(request: RequestState, num_tokens: int) -> bool:
    return request.num_computed_tokens + num_tokens >= request.num_tokens
