"""Whole engines: scheduler, cache, connector and model, with a check of the content of every block read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.core.offloading import HostTier
from enginehouse_sim.simulator.domain.outputs import SchedulerOutput
from enginehouse_sim.simulator.domain.request import RequestState, RequestStatus
from enginehouse_sim.simulator.kv.block_pool import BlockHasher
from enginehouse_sim.simulator.kv.cache_manager import KvCacheManager
from enginehouse_sim.simulator.kv.connector import HandedOverPrompts, KvConnector, KvLoad, TransferWorker
from enginehouse_sim.simulator.scheduler.scheduler import BatchScheduler
from enginehouse_sim.simulator.steps.costs import KvShape, KvTransfer
from tests.support.asked import new_state
from tests.support.kv_memory import CachedSequence, CheckedRunner, KvMemory

NewEngine = Callable[..., "Engine"]
LINK = KvTransfer(KvShape(layers=1, kv_heads=1, head_dim=1, dtype_bytes=1), bandwidth=4)  # half a second each token
PROMPT = [*range(65, 79)]


class Clock:
    """The same for all engines."""

    time = 0.0

    def now(self) -> float:
        return self.time


class Engine:
    """20 blocks of 4 tokens; a step takes a second."""

    def __init__(
        self,
        clock: Clock,
        *,
        host_blocks: int = 0,
        **constants: Any,
    ) -> None:
        limits = SchedulerConstants(block_size=4, total_gpu_blocks=21, max_model_len=200, **constants)
        hasher = BlockHasher(4)
        self.clock = clock
        self.cache = KvCacheManager(limits)
        self.host = HostTier(self.cache, hasher, host_blocks, LINK)
        connector = KvConnector([HandedOverPrompts(LINK), self.host])
        self.scheduler = BatchScheduler(limits, self.cache, connector)
        self.worker = TransferWorker()
        self.memory = KvMemory(4)
        self.runner = CheckedRunner(CoreSettings(), self.memory)
        self.answers: dict[str, list[int]] = {}
        self.params: dict[str, dict[str, Any]] = {}
        self._on_the_way: dict[str, tuple[KvLoad, RequestState]] = {}

    def add(self, request_id: str, prompt: Sequence[int] = PROMPT, max_tokens: int = 8, **fields: Any) -> RequestState:
        request = new_state(
            request_id=request_id,
            prompt_token_ids=list(prompt),
            max_tokens=max_tokens,
            arrival_time=self.clock.now(),
            **fields,
        )
        self.answers[request_id] = []
        self.scheduler.add_request(request)
        return request

    def step(self) -> SchedulerOutput:
        plan = self.scheduler.schedule()
        for load in plan.kv_connector_metadata:
            self._on_the_way[load.request_id] = load, self.scheduler.state.requests[load.request_id]
        self.worker.begin_step(plan.kv_connector_metadata, self.clock.time)
        result = self.runner.execute(plan)
        self.clock.time += 1
        self.worker.end_step(self.clock.time, result)
        for request_id in result.kv_connector_finished_recving:
            self._fill(request_id, self._on_the_way[request_id][1].num_computed_tokens)
        for output in self.scheduler.update_from_output(plan, result):
            self.answers[output.request_id].extend(output.new_token_ids)
            if output.kv_transfer_params is not None:
                self.params[output.request_id] = dict(output.kv_transfer_params)
        return plan

    def run(self, steps: int = 100) -> None:
        for _ in range(steps):
            if not self.scheduler.state.requests:
                return
            self.step()
        raise AssertionError(f"requests that never end: {list(self.scheduler.state.requests)}")

    def _fill(self, request_id: str, end: int) -> None:
        load, request = self._on_the_way.pop(request_id)
        occupant = CachedSequence(request_id, request.all_token_ids, self.cache.get_block_ids(request_id), "/")
        self.memory.write(occupant, end - load.num_tokens, end)

    @property
    def leaks(self) -> int:
        return 20 - self.cache.num_free_blocks


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def new_engine(clock: Clock) -> NewEngine:
    return lambda **fields: Engine(clock, **fields)


@pytest.fixture
def answer(new_engine: NewEngine) -> list[int]:
    """What an engine alone answers to the prompt."""
    engine = new_engine()
    engine.add("a")
    engine.run()
    assert len(engine.answers["a"]) == 8
    return engine.answers["a"]


def handed_over(new_engine: NewEngine) -> dict[str, Any]:
    """The parameters that an engine has for the one that answers its prompt."""
    prefill = new_engine()
    prefill.add("a", max_tokens=1, kv_transfer_params={"do_remote_decode": True})
    prefill.run()
    assert prefill.leaks == 0
    params: dict[str, Any] = prefill.params["a"]
    return params


def test_one_engine_reads_the_prompt_and_another_one_answers(new_engine: NewEngine, answer: list[int]) -> None:
    decode = new_engine()
    request = decode.add("b", kv_transfer_params=handed_over(new_engine))
    decode.run()
    assert (decode.answers["b"], decode.leaks) == (answer, 0)
    assert request.num_cached_tokens == 13  # of 14: the last one makes the first token


def test_a_request_that_is_preempted_computes_its_prompt(new_engine: NewEngine, answer: list[int]) -> None:
    decode = new_engine()
    request = decode.add("b", kv_transfer_params=handed_over(new_engine))
    while not request.output_token_ids:
        decode.step()
    decode.scheduler.pause("b", keep_blocks=False)
    decode.cache.reset_prefix_cache()
    decode.scheduler.resume("b")
    assert decode.step().num_scheduled_tokens == {"b": 14 + len(request.output_token_ids) - 1}
    decode.run()
    assert (decode.answers["b"], decode.leaks) == (answer, 0)


@pytest.mark.parametrize("params", [None, {}, {"do_remote_prefill": False}, {"do_remote_decode": True}])
def test_a_request_without_a_prompt_from_elsewhere_computes_it(
    new_engine: NewEngine, answer: list[int], params: dict[str, Any] | None
) -> None:
    engine = new_engine()
    request = engine.add("b", kv_transfer_params=params)
    engine.run()
    assert (engine.answers["b"], request.num_cached_tokens) == (answer, 0)


def test_only_a_request_that_ends_by_its_length_is_handed_over(new_engine: NewEngine) -> None:
    engine = new_engine()
    engine.add("a", kv_transfer_params={"do_remote_decode": True})
    engine.step()
    engine.scheduler.finish_requests(["a"], RequestStatus.FINISHED_ABORTED)
    assert "a" not in engine.params


def test_a_request_aborted_during_its_load_leaves_nothing(new_engine: NewEngine) -> None:
    decode = new_engine()
    request = decode.add("b", kv_transfer_params=handed_over(new_engine))
    decode.step()
    decode.scheduler.finish_requests(["b"], RequestStatus.FINISHED_ABORTED)
    assert decode.leaks == 4
    arrival = decode.worker.next_arrival
    assert arrival is not None
    decode._on_the_way["b"] = KvLoad("b", 0, 0.0), request  # its arrival is not read
    while decode.clock.time < arrival:
        decode.step()
    assert decode.leaks == 0


def test_an_offloaded_request_returns_through_admission_and_continues_as_before(
    new_engine: NewEngine, answer: list[int]
) -> None:
    engine = new_engine(host_blocks=10)
    request = engine.add("a")
    for _ in range(4):
        engine.step()
    engine.scheduler.pause("a", keep_blocks=True)
    move = engine.host.begin_offload(request)
    assert move is not None
    assert (move.num_tokens, engine.host.finish_offload(request), engine.leaks) == (16, 5, 0)
    engine.scheduler.state.free_blocks(request)
    engine.cache.reset_prefix_cache()
    engine.scheduler.resume("a")
    engine.step()
    assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    engine.run()
    assert (engine.answers["a"], engine.leaks, engine.host.num_free_blocks) == (answer, 0, 10)
