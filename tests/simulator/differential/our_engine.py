"""The simulated engine's scheduler, driven as vLLM's is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from enginehouse_sim.options import SchedulerConstants
from enginehouse_sim.simulator.domain.asked import MultiModalInput
from enginehouse_sim.simulator.domain.outputs import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import ConnectorMatch, KvConnector
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from tests.simulator.differential.drive import Scheduled
from tests.simulator.differential.workload import EOS, Item, StepRecord, Workload
from tests.support.asked import new_state


class WorkloadConnector(KvConnector):
    """A KV connector that has what the workload says."""

    def __init__(self, items: Mapping[str, Item]) -> None:
        self.loads: list[str] = []
        self.sends: list[str] = []
        self._items = items
        self._asked: dict[str, int] = {}
        self._begun: set[str] = set()

    def get_num_new_matched_tokens(self, request: RequestState, num_computed_tokens: int) -> ConnectorMatch:
        item = self._items[request.request_id]
        asked = self._asked[item.request_id] = self._asked.get(item.request_id, 0) + 1
        if asked <= item.asks:
            return ConnectorMatch(None)
        is_async = bool(item.load_steps)
        last = request.num_tokens if is_async else request.num_tokens - 1
        return ConnectorMatch(max(0, min(item.external, last) - num_computed_tokens), is_async)

    def update_state_after_alloc(
        self, request: RequestState, block_ids: Sequence[int], num_external_tokens: int
    ) -> None:
        if num_external_tokens and self._items[request.request_id].load_steps:
            self.loads.append(request.request_id)
            self._begun.add(request.request_id)

    def build_connector_metadata(self, scheduler_output: SchedulerOutput) -> None: ...

    def request_finished(
        self, request: RequestState, block_ids: Sequence[int]
    ) -> tuple[bool, Mapping[str, Any] | None]:
        if request.request_id in self._begun:
            return True, None
        keeps = self._items[request.request_id].send_steps and request.num_computed_tokens
        if keeps and request.status is not RequestStatus.FINISHED_ABORTED:
            self.sends.append(request.request_id)
            return True, None
        return False, None

    def update_connector_output(self, model_runner_output: ModelRunnerOutput) -> None:
        self._begun.difference_update(model_runner_output.kv_connector_finished_recving)


class _Plan(NamedTuple):
    output: SchedulerOutput
    computed: dict[str, int]


class OurEngine(Scheduled):
    """The simulated engine's scheduler with the limits of a workload."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._items = {item.request_id: item for item in workload.items}
        constants = msgspec.convert(workload.limits, SchedulerConstants)
        self._connector = WorkloadConnector(self._items) if workload.connector else None
        self._scheduler = BatchScheduler(constants, KvCacheManager(constants), self._connector)

    def add(self, item: Item) -> None:
        self._scheduler.add_request(
            new_state(
                request_id=item.request_id,
                prompt_token_ids=list(item.prompt),
                max_tokens=item.max_tokens,
                min_tokens=item.min_tokens,
                priority=item.priority,
                arrival_time=item.arrival_time,
                eos_token_id=EOS,
                ignore_eos=item.ignore_eos,
                stop_token_ids=frozenset(item.stop_token_ids),
                lora=f"lora-{item.lora}" if item.lora else None,
                cache_salt=item.salt,
                mm_inputs=[MultiModalInput(*image) for image in item.images],
            )
        )

    def abort(self, request_id: str) -> None:
        self._scheduler.finish_requests([request_id], RequestStatus.FINISHED_ABORTED)

    def has_requests(self) -> bool:
        state = self._scheduler.state
        return bool(state.requests or state.kept)

    def begun_loads(self) -> list[str]:
        if self._connector is None:
            return []
        loads, self._connector.loads = self._connector.loads, []
        return loads

    def begun_sends(self) -> list[str]:
        if self._connector is None:
            return []
        sends, self._connector.sends = self._connector.sends, []
        return sends

    def schedule(self) -> tuple[_Plan, StepRecord]:
        output, state = self._scheduler.schedule(), self._scheduler.state
        computed = {data.request_id: data.num_computed_tokens for data in output.new_requests}
        computed.update((data.request_id, data.num_computed_tokens) for data in output.cached_requests)
        record = StepRecord(
            step=output.step,
            scheduled=[(name, count, computed[name]) for name, count in output.num_scheduled_tokens.items()],
            drafts={name: len(drafts) for name, drafts in output.scheduled_spec_decode_tokens.items()},
            encoder_inputs={name: list(inputs) for name, inputs in output.scheduled_encoder_inputs.items()},
            preempted=sorted(output.preempted_req_ids),
            running=[request.request_id for request in state.running],
            waiting=[request.request_id for request in state.waiting],
            free_blocks=state.kv_cache.num_free_blocks,
            blocks=self._tables(),
        )
        return _Plan(output, computed), record

    def _tables(self) -> dict[str, list[int]]:
        names = [*self._scheduler.state.requests, *self._scheduler.state.kept]
        tables = {name: list(self._scheduler.state.kv_cache.get_block_ids(name)) for name in sorted(names)}
        return {name: table for name, table in tables.items() if table}

    def update(self, plan: _Plan, record: StepRecord, received: list[str], sent: list[str]) -> None:
        output, requests = plan.output, self._scheduler.state.requests
        ids = list(output.num_scheduled_tokens)
        sampled = [self._sampled(plan, name) for name in ids]
        drafts = [
            self._workload.drafts(self._items[name], len(requests[name].output_token_ids) + len(tokens))
            if tokens and name in requests
            else []
            for name, tokens in zip(ids, sampled, strict=True)
        ]
        result = ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={name: index for index, name in enumerate(ids)},
            sampled_token_ids=sampled,
            spec_token_ids=drafts if self._workload.limits.get("num_spec_tokens") else None,
            kv_connector_finished_recving=received,
            kv_connector_finished_sending=sent,
        )
        outputs = self._scheduler.update_from_output(output, result)
        record.outputs = sorted(
            (
                each.request_id,
                list(each.new_token_ids),
                each.finish_reason,
                each.stop_reason if isinstance(each.stop_reason, int) else None,
                each.num_cached_tokens,
            )
            for each in outputs
        )

    def _sampled(self, plan: _Plan, name: str) -> list[int]:
        request = self._scheduler.state.requests.get(name)
        if request is None:
            return [EOS]
        drafts = plan.output.scheduled_spec_decode_tokens.get(name, ())
        if plan.computed[name] + plan.output.num_scheduled_tokens[name] < request.num_tokens + len(drafts):
            return []
        return self._workload.sampled(self._items[name], len(request.output_token_ids), drafts)
