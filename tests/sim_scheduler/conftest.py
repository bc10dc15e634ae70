from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from enginehouse_sim.kv.cache_manager import PagedKvCacheManager
from enginehouse_sim.scheduler.constants import SchedulerConstants
from enginehouse_sim.scheduler.interfaces import ConnectorMatch, KvConnector, StructuredOutputManager
from enginehouse_sim.scheduler.output import EngineCoreOutputs, ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.scheduler.request import RequestState
from enginehouse_sim.scheduler.scheduler import BatchScheduler

TOKEN = 7
Stepped = tuple[SchedulerOutput, Mapping[int, EngineCoreOutputs]]


@pytest.fixture
def new_scheduler() -> Callable[..., BatchScheduler]:
    """100 blocks of 4 tokens, 100 tokens a step, 10 requests at once, unless told otherwise."""

    def new(
        connector: KvConnector | None = None,
        grammars: StructuredOutputManager | None = None,
        update_workers: int = 0,
        **constants: Any,
    ) -> BatchScheduler:
        fields = {"block_size": 4, "total_gpu_blocks": 101, "max_num_batched_tokens": 100, "max_num_seqs": 10}
        limits = SchedulerConstants(**{**fields, "max_model_len": 300, **constants})
        return BatchScheduler(limits, PagedKvCacheManager(limits), connector, grammars, update_workers=update_workers)

    return new


@pytest.fixture
def new_request() -> Callable[..., RequestState]:
    """A request named a, b, c ...; a prompt given by its length shares nothing with others."""
    names = (chr(ord("a") + number) for number in count())
    starts = count(1000, 1000)

    def new(prompt: int | list[int], max_tokens: int = 100, **fields: Any) -> RequestState:
        tokens = prompt if isinstance(prompt, list) else [*range(start := next(starts), start + prompt)]
        name = fields.pop("request_id", None) or next(names)
        return RequestState(request_id=name, prompt_token_ids=tokens, max_tokens=max_tokens, **fields)

    return new


@pytest.fixture
def outcome() -> Callable[..., ModelRunnerOutput]:
    """What the model made of a step: one token each, none for a prompt that is not read to its end, or ``tokens``."""

    def make(
        scheduler: BatchScheduler, step: SchedulerOutput, tokens: Mapping[str, list[int]] | None = None, **fields: Any
    ) -> ModelRunnerOutput:
        def sampled(request_id: str) -> list[int]:
            if tokens is not None and request_id in tokens:
                return tokens[request_id]
            request = scheduler.state.requests.get(request_id)
            partial = request is not None and request.num_computed_tokens < request.num_tokens
            return [] if partial else [TOKEN]

        ids = list(step.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=[sampled(request_id) for request_id in ids],
            **fields,
        )

    return make


@pytest.fixture
def run(outcome: Callable[..., ModelRunnerOutput]) -> Callable[..., Stepped]:
    """A whole step: plan it, make an outcome, take it in."""

    def run_step(scheduler: BatchScheduler, tokens: Mapping[str, list[int]] | None = None, **fields: Any) -> Stepped:
        step = scheduler.schedule()
        return step, scheduler.update_from_output(step, outcome(scheduler, step, tokens, **fields))

    return run_step


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
        self.version = 0

    @property
    def match_version(self) -> int:
        return self.version

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


@pytest.fixture
def new_connector() -> Callable[..., FakeConnector]:
    def new(*, load_async: bool = False, delays: Sequence[str] = (), **matches: int | None) -> FakeConnector:
        return FakeConnector(matches, load_async=load_async, delays=delays)

    return new


class FakeGrammars(StructuredOutputManager):
    """Allows the tokens from 0 to 9. The grammars of ``ready`` are compiled, those of ``broken`` never will be."""

    def __init__(self, ready: Sequence[str], broken: Sequence[str]) -> None:
        self.ready = set(ready)
        self.broken = set(broken)
        self.accepted: dict[str, list[int]] = {}
        self.rows_for: list[list[str]] = []
        self.forgotten: list[str] = []

    def grammar_init(self, request: RequestState) -> None:
        self.accepted[request.request_id] = []

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
        self.accepted[request.request_id].extend(token_ids)
        return all(token < 10 for token in token_ids)

    def validate_tokens(self, request: RequestState, token_ids: Sequence[int]) -> Sequence[int]:
        bad = next((index for index, token in enumerate(token_ids) if token >= 10), len(token_ids))
        return token_ids[:bad]

    def finished(self, request: RequestState) -> None:
        self.forgotten.append(request.request_id)


@pytest.fixture
def new_grammars() -> Callable[..., FakeGrammars]:
    def new(*ready: str, broken: Sequence[str] = ()) -> FakeGrammars:
        return FakeGrammars(ready, broken)

    return new
