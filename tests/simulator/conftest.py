from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from time import monotonic
from typing import Any

import openai
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_sim.options import SchedulerConstants
from enginehouse_sim.simulator.domain.outputs import ModelRunnerOutput, SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import KvConnector
from enginehouse_sim.simulator.model.grammar import GrammarManager
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from tests.support.asked import new_state
from tests.support.fake_clock import FakeClock
from tests.support.openai_clients import openai_client
from tests.support.scheduler_fakes import (
    Connectors,
    FakeConnector,
    FakeGrammars,
    Grammars,
    Outcome,
    Requests,
    Run,
    Schedulers,
    Stepped,
)

TOKEN = 7


@pytest.fixture
def new_scheduler() -> Schedulers:
    """100 blocks of 4 tokens, 100 tokens a step, 10 requests at once, steps one by one, unless told otherwise."""

    def new(
        connector: KvConnector | None = None,
        grammars: GrammarManager | None = None,
        **constants: Any,
    ) -> BatchScheduler:
        fields = {"block_size": 4, "total_gpu_blocks": 101, "max_num_batched_tokens": 100, "max_num_seqs": 10}
        fields |= {"async_scheduling": False}
        limits = SchedulerConstants(**{**fields, "max_model_len": 300, **constants})
        return BatchScheduler(limits, KvCacheManager(limits), connector, grammars)

    return new


@pytest.fixture
def new_request() -> Requests:
    """A request named a, b, c ...; a prompt given by its length shares nothing with others."""
    names = (chr(ord("a") + number) for number in count())
    starts = count(1000, 1000)

    def new(prompt: int | list[int], max_tokens: int = 100, **fields: Any) -> RequestState:
        tokens = prompt if isinstance(prompt, list) else [*range(start := next(starts), start + prompt)]
        name = fields.pop("request_id", None) or next(names)
        return new_state(request_id=name, prompt_token_ids=tokens, max_tokens=max_tokens, **fields)

    return new


@pytest.fixture
def outcome() -> Outcome:
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
def run(outcome: Outcome) -> Run:
    """A whole step: plan it, make an outcome, take it in."""

    def run_step(scheduler: BatchScheduler, tokens: Mapping[str, list[int]] | None = None, **fields: Any) -> Stepped:
        step = scheduler.schedule()
        return step, scheduler.update_from_output(step, outcome(scheduler, step, tokens, **fields))

    return run_step


@pytest.fixture
def new_connector() -> Connectors:
    def new(*, load_async: bool = False, delays: Sequence[str] = (), **matches: int | None) -> FakeConnector:
        return FakeConnector(matches, load_async=load_async, delays=delays)

    return new


@pytest.fixture
def new_grammars() -> Grammars:
    def new(*ready: str, broken: Sequence[str] = ()) -> FakeGrammars:
        return FakeGrammars(ready, broken)

    return new


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def fast_engine() -> Iterator[SimEngine]:
    """An engine that answers at once."""
    with SimEngine("tiny", "tiny-too", context_length=200, vision=True, tools=False) as engine:
        yield engine


@pytest.fixture(scope="session")
def stuck_engine() -> Iterator[SimEngine]:
    """An engine that takes hours for a long answer; two run at once."""
    with SimEngine("tiny", tpot="100ms", concurrency=2, context_length=200_000) as engine:
        yield engine


@pytest.fixture
def engine(fast_engine: SimEngine) -> Iterator[SimEngine]:
    """The fast engine, with nothing left over from another test."""
    fast_engine.clear()
    yield fast_engine
    fast_engine.clear()


@pytest.fixture
def client(engine: SimEngine) -> Iterator[openai.OpenAI]:
    with openai_client(engine.url) as client:
        yield client


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], bool]:
    """Asks a real process again and again for half a minute; each time costs it a request."""

    def holds(condition: Callable[[], bool]) -> bool:
        deadline = monotonic() + 30
        while monotonic() < deadline:
            if condition():
                return True
        return False

    return holds
