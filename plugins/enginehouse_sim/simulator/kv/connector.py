"""The KV connector: loads of keys and values from other memory and from other engines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

import msgspec

from enginehouse_sim.simulator.domain.outputs import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.steps.costs import KvTransfer


class KvSource(ABC):
    """A source of keys and values outside of device memory, as one engine sees it over the link ``transfer``."""

    transfer: KvTransfer

    @abstractmethod
    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        """The tokens available after the first ``num_computed_tokens``. Has no side effect."""

    def seconds(self, num_tokens: int) -> float:
        """The seconds that loading ``num_tokens`` takes."""
        return self.transfer.seconds(num_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        """The request has blocks: load ``num_tokens`` from here; 0 means that it does not need this source."""

    def delivered(self, request_id: str) -> None:
        """The claimed tokens are in device memory."""

    def release(self, request: RequestState) -> None:
        """The request finished, and no load for it is under way."""

    def handed_over(self, request: RequestState) -> Mapping[str, Any] | None:
        """The client's ``kv_transfer_params`` for another engine that continues the finished request, if any."""
        return None


class ConnectorMatch(NamedTuple):
    """The tokens available from outside, after those in the local cache.

    ``num_tokens`` is ``None`` while the answer is not known. ``load_async``: they arrive between steps, not within one.
    """

    num_tokens: int | None
    load_async: bool = False


class KvLoad(msgspec.Struct, frozen=True):
    """A load for one request, which arrives between steps."""

    request_id: str
    num_tokens: int
    seconds: float


class KvConnector:
    """The scheduler's side, with the life cycle of vLLM's ``KVConnectorBase_V1``.

    It asks ``sources`` in order; the first match serves the request.
    """

    def __init__(self, sources: Sequence[KvSource]) -> None:
        self._sources = sources
        self._matched: dict[str, KvSource] = {}
        self._loading: dict[str, KvSource] = {}
        self._loads: list[KvLoad] = []

    def get_num_new_matched_tokens(self, request: RequestState, num_computed_tokens: int) -> ConnectorMatch:
        """The tokens available after the first ``num_computed_tokens``."""
        for source in self._sources:
            num_tokens = source.match(request, num_computed_tokens)
            if num_tokens:
                self._matched[request.request_id] = source
                return ConnectorMatch(num_tokens, load_async=True)
        return ConnectorMatch(0)

    def update_state_after_alloc(
        self, request: RequestState, block_ids: Sequence[int], num_external_tokens: int
    ) -> None:
        """The request has blocks now; ``num_external_tokens`` are to be loaded into them."""
        matched = self._matched.pop(request.request_id, None)
        for source in self._sources:
            source.claim(request, num_external_tokens if source is matched else 0)
        if matched is not None and num_external_tokens:
            self._loading[request.request_id] = matched
            seconds = matched.seconds(num_external_tokens)
            self._loads.append(KvLoad(request.request_id, num_external_tokens, seconds))

    def build_connector_metadata(self, scheduler_output: SchedulerOutput) -> Any:
        """The loads that begin with this step, for the worker."""
        loads, self._loads = self._loads, []
        return loads

    def request_finished(
        self, request: RequestState, block_ids: Sequence[int]
    ) -> tuple[bool, Mapping[str, Any] | None]:
        """Return whether the blocks must be kept, and the client's ``kv_transfer_params``.

        They are kept while a load writes to them.
        """
        self._matched.pop(request.request_id, None)
        if request.request_id in self._loading:
            return True, None
        for source in self._sources:
            source.release(request)
        params = (source.handed_over(request) for source in self._sources)
        return False, next((each for each in params if each is not None), None)

    def update_connector_output(self, model_runner_output: ModelRunnerOutput) -> None:
        for request_id in model_runner_output.kv_connector_finished_recving:
            self._loading.pop(request_id).delivered(request_id)


class TransferWorker:
    """The worker's side: carries out the loads, and reports completed ones. Times are in seconds."""

    def __init__(self) -> None:
        self._arrivals: list[tuple[float, int, str]] = []
        self._num_loads = 0

    @property
    def next_arrival(self) -> float | None:
        """When the next load completes. An engine without other work waits until then."""
        return self._arrivals[0][0] if self._arrivals else None

    def begin_step(self, loads: Sequence[KvLoad], now: float) -> None:
        for load in loads:
            self._num_loads += 1
            heappush(self._arrivals, (now + load.seconds, self._num_loads, load.request_id))

    def end_step(self, now: float, output: ModelRunnerOutput) -> None:
        """Name the loads completed by ``now`` in ``output``."""
        arrived = []
        while self._arrivals and self._arrivals[0][0] <= now:
            arrived.append(heappop(self._arrivals)[2])
        output.kv_connector_finished_recving = arrived


class HandedOverPrompts(KvSource):
    """Follows ``kv_transfer_params`` with the keys of vLLM's NIXL connector.

    A request with ``do_remote_decode`` that finishes by its length gets the parameters for the decoding engine. A
    request with ``do_remote_prefill`` loads its prompt. The engine believes its parameters: it asks no other engine.
    """

    def __init__(self, transfer: KvTransfer) -> None:
        self.transfer = transfer

    def match(self, request: RequestState, num_computed_tokens: int) -> int:
        params = request.kv_transfer_params
        if params is None or not params.get("do_remote_prefill"):
            return 0
        return max(0, request.num_prompt_tokens - num_computed_tokens)

    def claim(self, request: RequestState, num_tokens: int) -> None:
        if num_tokens:  # as in vLLM, only once: after a preemption, the prompt is computed
            request.kv_transfer_params = None

    def handed_over(self, request: RequestState) -> Mapping[str, Any] | None:
        params = request.kv_transfer_params
        wanted = params is not None and params.get("do_remote_decode")
        if not wanted or request.status is not RequestStatus.FINISHED_LENGTH_CAPPED:
            return None
        return {"do_remote_prefill": True, "do_remote_decode": False, "remote_request_id": request.request_id}
