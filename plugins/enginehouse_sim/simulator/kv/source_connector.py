"""The KV connector of the simulated engine: loads from the first source that has a match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.domain.steps import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.kv.block_hashes import BlockHasher
from enginehouse_sim.simulator.kv.connector import ConnectorMatch, KvConnector
from enginehouse_sim.simulator.kv.disaggregation import Disaggregation
from enginehouse_sim.simulator.kv.source import KvSource
from enginehouse_sim.simulator.kv.transfer_worker import KvLoad, StepTransfers


class _SavedRequest:
    """A request, and the number of its blocks that the worker got to save."""

    __slots__ = ("num_saved", "request")

    def __init__(self, request: RequestState) -> None:
        self.request = request
        self.num_saved = 0


class SourceConnector(KvConnector):
    """Asks ``sources`` in order; the first match serves the request.

    ``disaggregation`` comes first, and keeps the blocks of requests that continue at another engine. With ``saves``,
    the worker puts every block that a step fills into the store.
    """

    def __init__(
        self,
        hasher: BlockHasher,
        sources: Sequence[KvSource] = (),
        *,
        disaggregation: Disaggregation | None = None,
        saves: bool = False,
    ) -> None:
        self._hasher = hasher
        self._disaggregation = disaggregation
        self._sources: Sequence[KvSource] = sources if disaggregation is None else (disaggregation, *sources)
        self._saves = saves
        self._matched: dict[str, KvSource] = {}
        self._loading: dict[str, KvSource] = {}
        self._tracked: dict[str, _SavedRequest] = {}
        self._loads: list[KvLoad] = []

    def get_num_new_matched_tokens(self, request: RequestState, num_computed_tokens: int) -> ConnectorMatch:
        for source in self._sources:
            num_tokens = source.match(request, num_computed_tokens)
            if num_tokens:
                self._matched[request.request_id] = source
                return ConnectorMatch(num_tokens, source.load_async)
        return ConnectorMatch(0)

    def update_state_after_alloc(
        self, request: RequestState, block_ids: Sequence[int], num_external_tokens: int
    ) -> None:
        request_id = request.request_id
        matched = self._matched.pop(request_id, None)
        for source in self._sources:
            source.claim(request, num_external_tokens if source is matched else 0)
        if matched is not None and num_external_tokens:
            self._loading[request_id] = matched
            seconds = matched.seconds(num_external_tokens)
            self._loads.append(KvLoad(request_id, num_external_tokens, seconds, matched.load_async))
        if self._saves and request_id not in self._tracked:
            self._tracked[request_id] = _SavedRequest(request)

    def build_connector_metadata(self, scheduler_output: SchedulerOutput) -> StepTransfers:
        loads, self._loads = self._loads, []
        for load in loads:
            if not load.load_async:
                self._loading.pop(load.request_id).delivered(load.request_id)
        return StepTransfers(loads, self._filled(scheduler_output) if self._saves else ())

    def request_finished(
        self, request: RequestState, block_ids: Sequence[int]
    ) -> tuple[bool, Mapping[str, Any] | None]:
        """Keep the blocks while a load writes to them, or another engine is to fetch them."""
        request_id = request.request_id
        self._matched.pop(request_id, None)
        self._tracked.pop(request_id, None)
        if request_id in self._loading:
            return True, None
        for source in self._sources:
            source.release(request)
        if self._disaggregation is None:
            return False, None
        return self._disaggregation.request_finished(request, block_ids)

    def update_connector_output(self, model_runner_output: ModelRunnerOutput) -> None:
        for request_id in model_runner_output.kv_connector_finished_recving:
            self._loading.pop(request_id).delivered(request_id)

    def _filled(self, scheduler_output: SchedulerOutput) -> Sequence[Sequence[int]]:
        size = self._hasher.block_size
        filled: list[Sequence[int]] = []
        for request_id, num_tokens in scheduler_output.num_scheduled_tokens.items():
            tracked = self._tracked[request_id]
            request = tracked.request
            num_blocks = min(request.num_computed_tokens + num_tokens, request.num_tokens) // size
            if num_blocks > tracked.num_saved:
                filled.append(self._hasher.extend(request)[tracked.num_saved : num_blocks])
                tracked.num_saved = num_blocks
        return filled
