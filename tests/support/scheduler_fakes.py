"""Fakes and fixture types for tests of the simulated engine's scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enginehouse_sim.simulator.domain.outputs import EngineCoreOutput, ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.connector import ConnectorMatch, KvConnector
from enginehouse_sim.simulator.model.grammar import GrammarManager
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler


class FakeConnector(KvConnector):
    """``matches``: tokens that it has, by request; ``delays``: requests whose blocks it wants to keep when they end."""

    def __init__(self, matches: Mapping[str, int | None], *, load_async: bool, delays: Sequence[str]) -> None:
        self.matches = dict(matches)
        self.load_async = load_async
        self.delays = delays
        self.asked: list[tuple[str, int]] = []
        self.allocated: list[tuple[str, tuple[int, ...], int]] = []
        self.finished: list[str] = []
        self.built_for: list[int] = []

    def get_num_new_matched_tokens(self, request: RequestState, num_computed_tokens: int) -> ConnectorMatch:
        self.asked.append((request.request_id, num_computed_tokens))
        have = self.matches.get(request.request_id, 0)
        return ConnectorMatch(have if have is None else max(0, have - num_computed_tokens), self.load_async)

    def update_state_after_alloc(
        self, request: RequestState, block_ids: Sequence[int], num_external_tokens: int
    ) -> None:
        self.allocated.append((request.request_id, tuple(block_ids), num_external_tokens))

    def build_connector_metadata(self, scheduler_output: SchedulerOutput) -> Any:
        self.built_for.append(scheduler_output.step)
        return {"tokens": scheduler_output.total_num_scheduled_tokens}

    def request_finished(
        self, request: RequestState, block_ids: Sequence[int]
    ) -> tuple[bool, Mapping[str, Any] | None]:
        self.finished.append(request.request_id)
        keep = request.request_id in self.delays
        return keep, {"remote_block_ids": list(block_ids)} if keep else None

    def update_connector_output(self, model_runner_output: ModelRunnerOutput) -> None: ...


class FakeGrammars(GrammarManager):
    """Allows the tokens from 0 to 9. The grammars of ``ready`` are compiled, those of ``broken`` never will be."""

    def __init__(self, ready: Sequence[str], broken: Sequence[str]) -> None:
        super().__init__()
        self.ready = set(ready)
        self.broken = set(broken)
        self.accepted: dict[str, list[int]] = {}
        self.rows_for: list[list[str]] = []
        self.forgotten: list[str] = []

    def is_ready(self, request: RequestState) -> bool:
        if request.request_id in self.broken:
            raise ValueError("no such grammar")
        return request.request_id in self.ready

    def grammar_bitmask(
        self, requests: Sequence[RequestState], scheduled_spec_tokens: Mapping[str, Sequence[int]]
    ) -> tuple[Mapping[str, int], Sequence[frozenset[int]]]:
        self.rows_for.append([request.request_id for request in requests])
        return {request.request_id: row for row, request in enumerate(requests)}, [frozenset(range(10))] * len(requests)

    def should_advance(self, request: RequestState) -> bool:
        return True

    def accept_tokens(self, request: RequestState, token_ids: Sequence[int]) -> bool:
        self.accepted.setdefault(request.request_id, []).extend(token_ids)
        return all(token < 10 for token in token_ids)

    def validate_tokens(self, request: RequestState, token_ids: Sequence[int]) -> Sequence[int]:
        bad = next((index for index, token in enumerate(token_ids) if token >= 10), len(token_ids))
        return token_ids[:bad]

    def finished(self, request: RequestState) -> None:
        self.forgotten.append(request.request_id)


def counts_of(scheduler: BatchScheduler) -> tuple[int, int, int]:
    """The numbers of requests that run, wait and pause."""
    state = scheduler.state
    return len(state.running), len(state.waiting), len(state.paused)


Stepped = tuple[SchedulerOutput, Sequence[EngineCoreOutput]]
Schedulers = Callable[..., BatchScheduler]
Requests = Callable[..., RequestState]
Outcome = Callable[..., ModelRunnerOutput]
Run = Callable[..., Stepped]
Connectors = Callable[..., FakeConnector]
Grammars = Callable[..., FakeGrammars]
