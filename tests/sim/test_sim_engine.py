from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from enginehouse_sim.server.engine import Figures, Work
from enginehouse_sim.server.generation import Generator
from enginehouse_sim.server.metrics import Metrics
from enginehouse_sim.server.paced_engine import PacedEngine
from enginehouse_sim.server.settings import Settings


def work(max_tokens: int = 3, prompts: tuple[str, ...] = ("hello",), choices: int = 1) -> Work:
    return Work(prompts=prompts, prompt_tokens=10, max_tokens=max_tokens, choices=choices)


def engine(clock: Any, **settings: Any) -> PacedEngine:
    return PacedEngine(Settings(**{"ttft": 1.0, "tpot": 0.5, "context_length": 100, **settings}), clock)


async def arrivals(engine: PacedEngine, clock: Any, work: Work) -> list[float]:
    async with aclosing(engine.generate(work)) as tokens:
        return [clock.now() async for _ in tokens]


async def test_tokens_come_at_the_pace_asked_for(clock: Any) -> None:
    running = asyncio.create_task(arrivals(engine(clock), clock, work(4)))
    await clock.advance(10)
    assert await running == pytest.approx([1.0, 1.5, 2.0, 2.5])


async def test_the_pace_is_the_same_however_many_run(clock: Any) -> None:
    core = engine(clock)
    running = [asyncio.create_task(arrivals(core, clock, work(2))) for _ in range(5)]
    await clock.advance(10)
    assert [await one for one in running] == [pytest.approx([1.0, 1.5])] * 5


async def test_requests_over_the_concurrency_wait_in_order(clock: Any) -> None:
    core = engine(clock, concurrency=1)
    running = [asyncio.create_task(arrivals(core, clock, work(2))) for _ in range(3)]
    await clock.advance(0)
    assert core.figures().running == 1
    assert core.figures().waiting == 2
    await clock.advance(10)
    assert [(await one)[0] for one in running] == pytest.approx([1.0, 2.5, 4.0])
    assert core.figures() == Figures(0, 0, 0.0)


@pytest.mark.parametrize("running_for", [0.5, 1.2], ids=["reading", "writing"])
async def test_a_closed_request_leaves_its_seat_at_once(clock: Any, running_for: float) -> None:
    core = engine(clock, concurrency=1)
    first, second = (asyncio.create_task(arrivals(core, clock, work())) for _ in range(2))
    await clock.advance(running_for)
    first.cancel()
    await clock.advance(10)
    assert first.cancelled()
    assert (await second)[0] == pytest.approx(running_for + 1.0)
    assert core.figures() == Figures(0, 0, 0.0)


async def test_a_request_cancelled_while_it_waits_leaves_no_trace(clock: Any) -> None:
    core = engine(clock, concurrency=1)
    first, second, third = (asyncio.create_task(arrivals(core, clock, work(1))) for _ in range(3))
    await clock.advance(0.5)
    second.cancel()
    await clock.advance(0)
    assert core.figures().waiting == 1
    await clock.advance(10)
    assert await first == pytest.approx([1.0])
    assert await third == pytest.approx([2.0])
    assert core.figures() == Figures(0, 0, 0.0)


async def test_the_cache_holds_prompts_and_answers_of_what_runs(clock: Any) -> None:
    core = engine(clock, concurrency=2)
    running = asyncio.create_task(arrivals(core, clock, work(20)))
    await clock.advance(0.5)
    assert core.figures().kv_usage == 10 / 200
    await clock.advance(1.0)
    assert core.figures().kv_usage == 12 / 200
    running.cancel()
    await clock.advance(0)
    assert core.figures().kv_usage == 0


async def test_without_a_pace_nothing_is_waited_for(clock: Any) -> None:
    core = engine(clock, ttft=0.0, tpot=0.0)
    tokens = core.generate(work(1000))
    for _ in range(1000):
        with pytest.raises(StopIteration):  # the next token is there without a turn of the event loop
            tokens.__anext__().send(None)
    await tokens.aclose()


async def test_every_choice_of_every_prompt_is_continued(clock: Any) -> None:
    core = engine(clock, ttft=0.0, tpot=0.0)
    tokens = [token async for token in core.generate(work(2, ("a", "b"), choices=2))]
    assert [token.choice for token in tokens] == [0, 1, 2, 3] * 2
    assert [token.finish for token in tokens] == [None] * 4 + ["length"] * 4


async def test_work_that_is_only_read_takes_its_time_and_makes_no_token(clock: Any) -> None:
    reading = asyncio.create_task(arrivals(engine(clock), clock, work(0)))
    await clock.advance(0.9)
    assert not reading.done()
    await clock.advance(0.1)
    assert await reading == []


class TestMetrics:
    async def test_a_request_is_counted_and_timed(self, clock: Any) -> None:
        metrics = Metrics('a "model"')
        core = engine(clock)
        answering = asyncio.create_task(Generator(core, metrics, clock).answers(work(3)))
        await clock.advance(10)
        [answer], tokens = await answering
        assert (answer.finish, tokens) == ("length", 3)
        page = metrics.render(core.figures())
        labels = r'engine="0",model_name="a \"model\""'
        assert f"vllm:prompt_tokens_total{{{labels}}} 10\n" in page
        assert f"vllm:generation_tokens_total{{{labels}}} 3\n" in page
        assert f'vllm:request_success_total{{{labels},finished_reason="length"}} 1\n' in page
        assert f'vllm:time_to_first_token_seconds_bucket{{{labels},le="0.75"}} 0\n' in page
        assert f'vllm:time_to_first_token_seconds_bucket{{{labels},le="1.0"}} 1\n' in page
        assert f"vllm:inter_token_latency_seconds_count{{{labels}}} 2\n" in page
        assert f"vllm:e2e_request_latency_seconds_sum{{{labels}}} 2.0\n" in page

    async def test_an_aborted_request_is_counted_as_that(self, clock: Any) -> None:
        metrics = Metrics("m")
        core = engine(clock)
        answering = asyncio.create_task(Generator(core, metrics, clock).answers(work(3)))
        await clock.advance(1.2)
        answering.cancel()
        await clock.advance(0)
        assert metrics.finished == {"stop": 0, "length": 0, "abort": 1}
        assert metrics.generation_tokens == 1
        assert core.figures() == Figures(0, 0, 0.0)

    async def test_a_stop_string_ends_one_answer_and_frees_the_engine(self, clock: Any) -> None:
        metrics = Metrics("m")
        core = engine(clock, ttft=0.0, tpot=0.0)
        [answer], tokens = await Generator(core, metrics, clock).answers(work(50), ["bolt"])
        assert (answer.text, answer.finish, tokens) == (" snow river cab ", "stop", 4)
        assert metrics.finished["stop"] == 1
        assert core.figures() == Figures(0, 0, 0.0)
