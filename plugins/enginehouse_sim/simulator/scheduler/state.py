"""The state that the scheduler keeps from step to step: its queues, and a step while it is planned."""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from enginehouse_sim.options import SchedulerConstants, SchedulingPolicy
from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput, NewRequestData, SchedulerOutput, SchedulerTotals
from enginehouse_sim.simulator.domain.request import FINISH_REASONS, CachedRequestData, RequestState, RequestStatus
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import KvConnector
from enginehouse_sim.simulator.model.grammar import GrammarManager
from enginehouse_sim.simulator.scheduler.encoder import EncoderCache, EncoderPlan

_FIRST, _THEN = 0, 1


class WaitingRequests:
    """All waiting requests: by ``priority`` the smallest one first, then the earliest arrival, as in vLLM; else equals.

    Requests that hold blocks already, because of a load, come before all others, as in vLLM. Behind a request that
    needs their blocks, they would keep these for ever.
    """

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._by_priority = policy is SchedulingPolicy.PRIORITY
        self._count = 0
        self._waiting: list[tuple[int, tuple[int, float, str], int, RequestState]] = []
        self._skipped: list[RequestState] = []

    def add(self, request: RequestState) -> None:
        """Add a new request, after its equals."""
        self._count += 1
        self._insert(_THEN, request, self._count)

    def put_back(self, request: RequestState) -> None:
        """Add a request that had its turn, before its equals."""
        self._count += 1
        self._insert(_FIRST if _holds_blocks(request) else _THEN, request, -self._count)

    def remove(self, request_ids: Collection[str]) -> None:
        """Remove requests that finished while waiting. Unknown ids are ignored."""
        self._waiting = [entry for entry in self._waiting if entry[3].request_id not in request_ids]

    def peek(self) -> RequestState | None:
        return self._waiting[0][3] if self._waiting else None

    def pop(self) -> RequestState:
        return self._waiting.pop(0)[3]

    def skip(self) -> None:
        """Put the head aside until ``restore_skipped``; the next one is the head."""
        self._skipped.append(self.pop())

    def restore_skipped(self) -> None:
        """Return skipped requests to the head, in their order."""
        while self._skipped:
            self.put_back(self._skipped.pop())

    def __len__(self) -> int:
        return len(self._waiting) + len(self._skipped)

    def __iter__(self) -> Iterator[RequestState]:
        yield from self._skipped
        for entry in self._waiting:
            yield entry[3]

    def holders(self) -> list[RequestState]:
        """The waiting requests that hold blocks."""
        found = [request for request in self._skipped if _holds_blocks(request)]
        for place, _, _, request in self._waiting:
            if place != _FIRST:
                break
            if _holds_blocks(request):
                found.append(request)
        return found

    def _insert(self, place: int, request: RequestState, number: int) -> None:
        key = (request.priority, request.arrival_time, request.request_id) if self._by_priority else (0, 0.0, "")
        insort(self._waiting, (place, key, number, request))


def _holds_blocks(request: RequestState) -> bool:
    return request.num_computed_tokens > 0 or request.status is RequestStatus.WAITING_FOR_REMOTE_KVS


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
