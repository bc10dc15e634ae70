"""The state that the scheduler keeps from step to step, and a step while it is planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.domain.outputs import (
    EngineCoreOutput,
    NewRequestData,
    SchedulerOutput,
    SchedulerTotals,
)
from enginehouse_sim.simulator.domain.request import FINISH_REASONS, RequestState, RequestStatus
from enginehouse_sim.simulator.domain.steps import CachedRequestData
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import KvConnector
from enginehouse_sim.simulator.model.grammar import GrammarManager
from enginehouse_sim.simulator.scheduler.encoder import EncoderCache, EncoderPlan
from enginehouse_sim.simulator.scheduler.queues import WaitingRequests


class SchedulerState:
    """Each request is in ``requests``, and in one of ``running`` (in order of admission), ``waiting`` and ``paused``.

    ``plans_ahead``: ``async_scheduling``. ``tracks_prefills``: whether each step updates ``is_prefill_chunk``.
    ``finished``: the requests that have ended since the last plan, for the model runner. ``finished_outputs``: outputs
    from outside of a step. ``in_flight``: the steps whose results are not known yet. ``loading``: the requests to whose
    blocks a load writes between steps. ``kept``: the finished requests whose blocks the connector still needs.
    ``max_new_requests``: the most requests without outputs to admit in a step; ``None``: any number.
    """

    def __init__(
        self,
        constants: SchedulerConstants,
        kv_cache: KvCacheManager,
        connector: KvConnector | None = None,
        grammars: GrammarManager | None = None,
    ) -> None:
        self.constants = constants
        self.kv_cache = kv_cache
        self.connector = connector
        self.grammars = grammars
        self.plans_ahead = constants.async_scheduling
        self.tracks_prefills = connector is not None or constants.use_spec_decode
        self.requests: dict[str, RequestState] = {}
        self.running: list[RequestState] = []
        self.paused: dict[str, RequestState] = {}
        self.waiting = WaitingRequests(constants.policy)
        self.encoder_cache = EncoderCache(constants.encoder_cache_size)
        self.loading: set[str] = set()
        self.kept: dict[str, RequestState] = {}
        self.finished: list[str] = []
        self.finished_outputs: list[EngineCoreOutput] = []
        self.totals = SchedulerTotals()
        self.in_flight: dict[int, SchedulerOutput] = {}
        self.next_step = 0
        self.max_new_requests: int | None = None

    def last_step_in_flight(self, request_id: str) -> int:
        """The latest step in flight that computes for the request; -1 for none."""
        steps = (step for step, output in self.in_flight.items() if request_id in output.num_scheduled_tokens)
        return max(steps, default=-1)

    def free_blocks(self, request: RequestState) -> None:
        """Free the request's blocks, and reset its counts of computed tokens. The tokens stay."""
        self.kv_cache.free(request)
        self.encoder_cache.release_all(request)
        request.num_computed_tokens = 0
        request.num_output_placeholders = 0
        request.spec_token_ids = []
        request.fast_path_until = 0
        request.stale_step = self.last_step_in_flight(request.request_id)


class StepPlan:
    """The remaining budgets, and the scheduled requests, in the order of ``requests`` and ``num_scheduled_tokens``.

    ``prefills``: whether a running request computes a part of its prompt.
    """

    def __init__(self, step: int, token_budget: int, encoder_budget: int) -> None:
        self.step = step
        self.token_budget = token_budget
        self.encoder_budget = encoder_budget
        self.prefills = False
        self.requests: list[RequestState] = []
        self.num_scheduled_tokens: dict[str, int] = {}
        self.cached: list[CachedRequestData] = []
        self.new: list[NewRequestData] = []
        self.resumed: list[CachedRequestData] = []
        self.preempted: list[str] = []
        self.spec_tokens: dict[str, Sequence[int]] = {}
        self.encoder_inputs: dict[str, tuple[int, ...]] = {}

    def add(self, request: RequestState, num_tokens: int) -> None:
        self.requests.append(request)
        self.num_scheduled_tokens[request.request_id] = num_tokens
        self.token_budget -= num_tokens

    def add_encoder_inputs(self, cache: EncoderCache, request: RequestState, encoder: EncoderPlan) -> None:
        for index in encoder.to_encode:
            cache.hold(request, index)
        for index in encoder.duplicates:
            cache.share(request, index)
        if encoder.to_encode:
            self.encoder_inputs[request.request_id] = tuple(encoder.to_encode)
            self.encoder_budget -= encoder.cost

    def remove(self, request: RequestState) -> None:
        request_id = request.request_id
        num_tokens = self.num_scheduled_tokens.pop(request_id, 0)
        if not num_tokens:
            return
        self.token_budget += num_tokens
        self.requests.remove(request)
        self.cached[:] = [data for data in self.cached if data.request_id != request_id]
        self.spec_tokens.pop(request_id, None)
        for index in self.encoder_inputs.pop(request_id, ()):
            self.encoder_budget += request.mm_inputs[index].length


def free_request(state: SchedulerState, request: RequestState) -> Mapping[str, Any] | None:
    """Free everything that a finished request holds, except blocks that the connector still sends.

    Return the client's ``kv_transfer_params``. The caller removes the request from its queue.
    """
    keep, transfer = False, None
    if state.connector is not None:
        block_ids = state.kv_cache.get_block_ids(request.request_id)
        keep, transfer = state.connector.request_finished(request, block_ids)
    if request.structured_output is not None and state.grammars is not None:
        state.grammars.finished(request)
    state.loading.discard(request.request_id)
    state.encoder_cache.release_all(request)
    state.finished.append(request.request_id)
    del state.requests[request.request_id]
    if keep:
        state.kept[request.request_id] = request
    else:
        state.kv_cache.free(request)
    return transfer


def finish_waiting(
    state: SchedulerState, request: RequestState, status: RequestStatus, reason: str | None = None
) -> None:
    """Finish a waiting request that can never run; its client gets an output with the next step."""
    state.waiting.remove((request.request_id,))
    request.status = status
    request.stop_reason = reason
    transfer = free_request(state, request)
    output = EngineCoreOutput(request.request_id, (), FINISH_REASONS[status], reason, kv_transfer_params=transfer)
    state.finished_outputs.append(output)
