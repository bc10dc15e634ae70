from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from enginehouse import InvalidRequest
from enginehouse_sim.options import CoreSettings, SchedulerConstants, SchedulingPolicy
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.domain.asked import EngineCoreRequest
from enginehouse_sim.simulator.model.grammar import JSON_OBJECT
from enginehouse_sim.simulator.model.text import EOS, encode
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine, EngineFailed
from enginehouse_sim.simulator.server.bodies import EncodedPrompt, Work
from enginehouse_sim.simulator.server.metrics import Metrics
from enginehouse_sim.simulator.server.runs import Run, RunAnswer
from tests.support.fake_clock import FakeClock
from tests.support.sampled_text import generate

_ids = count()


def work(max_tokens: int = 3, prompts: tuple[str, ...] = ("hello",), **more: Any) -> Work:
    of_work = {name: more.pop(name) for name in Work.__struct_fields__ if name in more}
    ids = {"request_id": f"request-{next(_ids)}", **more}
    asked = EngineCoreRequest(prompt_token_ids=[], max_tokens=max_tokens, eos_token_id=EOS, **ids)
    return Work(asked=asked, prompts=[EncodedPrompt(encode(prompt)) for prompt in prompts], **of_work)


def new_engine(clock: FakeClock, *, ttft: float = 1.0, tpot: float = 0.5, **constants: Any) -> BatchingEngine:
    limits = SchedulerConstants(**{"block_size": 4, "total_gpu_blocks": 101, "max_model_len": 100, **constants})
    return BatchingEngine(build_core(CoreSettings(constants=limits, ttft=ttft, tpot=tpot)), clock)


def start(engine: BatchingEngine, clock: FakeClock, work: Work, metrics: Metrics | None = None, **how: bool) -> Run:
    return Run(work, engine, metrics or Metrics(engine), **how)


async def arrivals(engine: BatchingEngine, clock: FakeClock, work: Work) -> list[float]:
    with start(engine, clock, work, streams=True) as run:
        return [clock.now() async for _ in run.pieces()]


async def answers(
    engine: BatchingEngine, clock: FakeClock, work: Work, metrics: Metrics | None = None
) -> list[RunAnswer]:
    with start(engine, clock, work, metrics) as run:
        return list(await run.finished())


def load(engine: BatchingEngine) -> tuple[int, int, float]:
    state = engine.state
    return len(state.running), len(state.waiting), state.kv_cache.usage


IDLE = (0, 0, 0.0)


async def test_tokens_come_at_the_pace_asked_for(clock: FakeClock) -> None:
    running = asyncio.create_task(arrivals(new_engine(clock), clock, work(4)))
    await clock.advance(10)
    assert await running == pytest.approx([1.0, 1.5, 2.0, 2.5])


async def test_those_that_come_together_run_together(clock: FakeClock) -> None:
    engine = new_engine(clock)
    running = [asyncio.create_task(arrivals(engine, clock, work(2, (f"prompt {n}",)))) for n in range(5)]
    await clock.advance(10)
    assert [await one for one in running] == [pytest.approx([1.0, 1.5])] * 5


async def test_a_request_that_arrives_during_a_step_waits_for_it_and_for_the_one_planned_ahead(
    clock: FakeClock,
) -> None:
    engine = new_engine(clock)
    first = asyncio.create_task(arrivals(engine, clock, work(3)))
    await clock.advance(1.2)
    second = asyncio.create_task(arrivals(engine, clock, work(2, ("other",))))
    await clock.advance(10)
    assert await first == pytest.approx([1.0, 1.5, 2.0])
    assert await second == pytest.approx([3.0, 3.5])


async def test_requests_over_the_concurrency_wait_in_order(clock: FakeClock) -> None:
    engine = new_engine(clock, max_num_seqs=1)
    running = [asyncio.create_task(arrivals(engine, clock, work(2))) for _ in range(3)]
    await clock.advance(0)
    assert load(engine)[:2] == (1, 2)
    await clock.advance(10)
    assert [(await one)[0] for one in running] == pytest.approx([1.0, 2.5, 4.0])
    assert load(engine) == IDLE


@pytest.mark.parametrize("running_for", [0.5, 1.2], ids=["reading", "writing"])
async def test_an_aborted_run_frees_its_blocks_at_once(clock: FakeClock, running_for: float) -> None:
    engine = new_engine(clock, max_num_seqs=1)
    first, second = (asyncio.create_task(arrivals(engine, clock, work())) for _ in range(2))
    await clock.advance(running_for)
    assert load(engine)[:2] == (1, 1)
    first.cancel()
    await clock.advance(0)
    assert load(engine) == (0, 1, 0.0)
    await clock.advance(10)
    assert first.cancelled()
    assert (await second)[0] == pytest.approx({0.5: 2.5, 1.2: 3.0}[running_for])
    assert load(engine) == IDLE


async def test_a_step_without_requests_left_ends_early(clock: FakeClock) -> None:
    engine = new_engine(clock)
    first = asyncio.create_task(arrivals(engine, clock, work()))
    await clock.advance(0.5)
    first.cancel()
    await clock.advance(0.1)
    second = asyncio.create_task(arrivals(engine, clock, work(1)))
    await clock.advance(10)
    assert await second == pytest.approx([1.6])


async def test_a_request_cancelled_while_it_waits_leaves_no_trace(clock: FakeClock) -> None:
    engine = new_engine(clock, max_num_seqs=1)
    first, second, third = (asyncio.create_task(arrivals(engine, clock, work(1))) for _ in range(3))
    await clock.advance(0.5)
    second.cancel()
    await clock.advance(0)
    assert load(engine)[:2] == (1, 1)
    await clock.advance(10)
    assert await first == pytest.approx([1.0])
    assert await third == pytest.approx([2.0])
    assert load(engine) == IDLE


async def test_a_late_step_is_made_up_for_but_not_a_long_pause(clock: FakeClock) -> None:
    engine = new_engine(clock)
    running = asyncio.create_task(arrivals(engine, clock, work(4)))
    await clock.advance(1.0)
    clock.stall(1.2)  # until 2.2: what was due at 1.5 comes late, and the next at once; then the pace is kept again
    await clock.advance(10)
    assert await running == pytest.approx([1.0, 2.2, 2.2, 2.7])


async def test_without_a_pace_others_get_their_turn_between_any_two_steps(clock: FakeClock) -> None:
    engine = new_engine(clock, ttft=0, tpot=0)
    long = asyncio.create_task(answers(engine, clock, work(90)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    [short] = await answers(engine, clock, work(2))
    assert not long.done()
    assert len(short.token_ids) == 2
    [answer] = await long
    assert len(answer.token_ids) == 90


async def test_every_choice_of_every_prompt_is_continued(clock: FakeClock) -> None:
    engine = new_engine(clock, ttft=0, tpot=0)
    with start(engine, clock, work(2, ("a", "b"), choices=2), streams=True) as run:
        pieces = [piece async for piece in run.pieces()]
    assert [piece.choice for piece in pieces] == [0, 1, 2, 3] * 2
    assert [piece.finish for piece in pieces] == [None] * 4 + ["length"] * 4
    for choice, answer in enumerate(run.answers):
        made = generate(0, "ab"[choice // 2], choice % 2)
        assert answer.text == next(made) + next(made)


async def test_work_that_is_only_read_takes_its_time_and_makes_no_token(clock: FakeClock) -> None:
    reading = asyncio.create_task(answers(new_engine(clock), clock, work(0, pooling=True)))
    await clock.advance(0.9)
    assert not reading.done()
    await clock.advance(0.1)
    [answer] = await reading
    assert (answer.token_ids, answer.text, len(answer.pooled)) == ([], "", 64)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (work(prompts=("",)), "empty"),
        (work(prompts=(" x" * 70,)), "a prompt of 70 tokens .* the KV cache holds 64"),
        (work(structured_output="{"), "cannot be compiled: it is not understood"),
        (work(structured_output='{"pattern": "x"}'), "unknown field `pattern`"),
    ],
    ids=["empty", "long", "no schema", "other schema"],
)
async def test_work_that_can_never_be_done_is_refused_alone(clock: FakeClock, asked: Work, why: str) -> None:
    engine = new_engine(clock, total_gpu_blocks=17)
    running = asyncio.create_task(arrivals(engine, clock, work(2)))
    await clock.advance(0.5)
    with pytest.raises(InvalidRequest, match=f"(?i){why}"), start(engine, clock, asked):
        pass
    await clock.advance(10)
    assert await running == pytest.approx([1.0, 1.5])
    assert load(engine) == IDLE


async def test_if_one_prompt_is_refused_the_others_do_not_run(clock: FakeClock) -> None:
    engine = new_engine(clock)
    with pytest.raises(InvalidRequest), start(engine, clock, work(prompts=("fine", ""))):
        pass
    assert load(engine) == IDLE


async def test_an_answer_cut_by_the_end_of_the_cache_has_its_length_as_reason(clock: FakeClock) -> None:
    engine = new_engine(clock, ttft=0, tpot=0, total_gpu_blocks=5)
    answering = asyncio.create_task(answers(engine, clock, work(90)))
    await clock.advance(1)
    [answer] = await answering
    assert answer.finish == "length"
    assert 0 < len(answer.token_ids) <= 16


async def test_a_stop_string_ends_one_answer_and_frees_the_engine(clock: FakeClock) -> None:
    engine = new_engine(clock, ttft=0, tpot=0)
    metrics = Metrics(engine)
    [answer] = await answers(engine, clock, work(50, stops=["bolt"]), metrics)
    assert (answer.text, answer.finish, answer.stop_reason) == (" snow river cab ", "stop", "bolt")
    assert len(answer.token_ids) == 4
    assert 'finished_reason="stop",model_name="sim"} 1.0' in metrics.page().decode()
    assert load(engine) == IDLE


async def test_the_moment_of_a_stop_does_not_depend_on_tokens_made_together(clock: FakeClock) -> None:
    engine = new_engine(clock, ttft=0, tpot=0, num_spec_tokens=4)
    [answer] = await answers(engine, clock, work(50, stops=["bolt"], logprobs=2))
    assert (answer.text, len(answer.token_ids), len(answer.logprobs)) == (" snow river cab ", 4, 4)


async def test_a_stop_token_ends_an_answer_and_is_shown_on_demand(clock: FakeClock) -> None:
    engine = new_engine(clock, ttft=0, tpot=0)
    [bolt] = encode(" bolt")
    stops = frozenset({bolt})
    [hidden] = await answers(engine, clock, work(50, stop_token_ids=stops))
    [shown] = await answers(engine, clock, work(50, stop_token_ids=stops, include_stop=True))
    assert (hidden.text, hidden.finish, hidden.stop_reason) == (" snow river cab", "stop", bolt)
    assert shown.text == " snow river cab bolt"
    assert shown.token_ids == hidden.token_ids


async def test_stops_are_not_looked_for_before_min_tokens(clock: FakeClock) -> None:
    engine = new_engine(clock, ttft=0, tpot=0)
    [answer] = await answers(engine, clock, work(9, stops=["river"], min_tokens=5))
    assert (answer.finish, len(answer.token_ids)) == ("length", 9)


async def test_sleep_aborts_requests_and_drops_the_cache(clock: FakeClock) -> None:
    engine = new_engine(clock)
    running = asyncio.create_task(answers(engine, clock, work(9, ("one two three four five",))))
    await clock.advance(1.2)
    engine.sleep(1)
    [answer] = await running
    assert (answer.finish, len(answer.token_ids)) == ("abort", 1)
    assert load(engine) == IDLE
    while_asleep = asyncio.create_task(answers(engine, clock, work(1, ("one two three four five",))))
    await clock.advance(10)
    assert load(engine)[:2] == (0, 1)
    engine.wake()
    await clock.advance(10)
    [later] = await while_asleep
    assert (later.finish, later.cached_tokens) == ("length", 0)


async def test_a_step_that_fails_ends_everything(clock: FakeClock) -> None:
    engine = new_engine(clock)

    def broken(begins_at: float) -> None:
        raise RuntimeError("out of order")

    engine._core.before_step = broken
    for _ in range(2):
        with pytest.raises(EngineFailed, match="out of order"):
            await answers(engine, clock, work())


async def test_a_detached_request_continues_in_another_engine(clock: FakeClock) -> None:
    one, other = new_engine(clock), new_engine(clock)
    asked = work(8, stops=["road"], logprobs=1)
    [whole] = await answers(new_engine(clock, ttft=0, tpot=0), clock, asked)
    with start(one, clock, asked, streams=True) as run:
        await clock.advance(2.2)
        request, listener = one.detach_request(asked.id)
        assert load(one) == IDLE
        assert len(request.output_token_ids) == 3
        [answer] = run.answers
        assert listener is answer.followers
        answer.followers.location = other
        other.add_request(request, listener)
        await clock.advance(10)
        text = "".join([piece.text async for piece in run.pieces()])
    assert (text, answer.token_ids, answer.logprobs) == (whole.text, whole.token_ids, whole.logprobs)
    assert (answer.finish, answer.stop_reason) == (whole.finish, whole.stop_reason)


async def test_leaving_a_run_aborts_a_detached_request_where_it_is(clock: FakeClock) -> None:
    one, other = new_engine(clock), new_engine(clock)
    asked = work(8)
    with start(one, clock, asked) as run:
        await clock.advance(1.2)
        request, listener = one.detach_request(asked.id)
        run.answers[0].followers.location = other
        other.add_request(request, listener)
        await clock.advance(0.5)
        assert load(other)[:2] == (1, 0)
    assert load(other) == IDLE


async def test_an_answer_under_a_grammar_continues_elsewhere(clock: FakeClock) -> None:
    one, other = new_engine(clock), new_engine(clock)
    asked = work(30, structured_output=JSON_OBJECT)
    [whole] = await answers(new_engine(clock, ttft=0, tpot=0), clock, asked)
    with start(one, clock, asked) as run:
        await clock.advance(2.2)
        request, listener = one.detach_request(asked.id)
        run.answers[0].followers.location = other
        other.add_request(request, listener)
        await clock.advance(30)
        [answer] = await run.finished()
    assert answer.text == whole.text


async def test_two_requests_may_want_the_same_name(clock: FakeClock) -> None:
    engine = new_engine(clock)
    running = [asyncio.create_task(answers(engine, clock, work(1, request_id="same"))) for _ in range(2)]
    await clock.advance(10)
    assert [len((await one)[0].token_ids) for one in running] == [1, 1]


async def test_a_name_is_not_used_again_while_a_step_is_under_way_for_it(clock: FakeClock) -> None:
    engine = new_engine(clock)
    other = asyncio.create_task(answers(engine, clock, work(3, ("keeps the step going",))))
    first = asyncio.create_task(answers(engine, clock, work(3, ("one",), request_id="same")))
    await clock.advance(1.2)
    first.cancel()
    await clock.advance(0)
    again = asyncio.create_task(answers(engine, clock, work(2, ("two",), request_id="same")))
    await clock.advance(10)
    await other
    made = generate(0, "two")
    assert (await again)[0].text == next(made) + next(made)


async def test_the_more_urgent_request_goes_first(clock: FakeClock) -> None:
    engine = new_engine(clock, max_num_seqs=1, policy=SchedulingPolicy.PRIORITY)
    running = [asyncio.create_task(arrivals(engine, clock, work(1, priority=priority))) for priority in (0, 5, -5)]
    await clock.advance(10)
    assert [(await one)[0] for one in running] == pytest.approx([2.0, 3.0, 1.0])


def figure(metrics: Metrics, name: str, **labels: str) -> float:
    """The figure of that name, without ``vllm:``, and with these labels besides those of all figures."""
    families = text_string_to_metric_families(metrics.page().decode())
    wanted = {"engine": "0", "model_name": "sim", **labels}
    [value] = [each.value for family in families for each in family.samples if each[:2] == (f"vllm:{name}", wanted)]
    return float(value)


class TestMetrics:
    async def test_a_request_is_counted_and_timed(self, clock: FakeClock) -> None:
        engine = new_engine(clock, max_num_seqs=1)
        metrics = Metrics(engine)
        before = asyncio.create_task(answers(engine, clock, work(1)))
        answering = asyncio.create_task(answers(engine, clock, work(3, ("one two three",)), metrics))
        await clock.advance(10)
        await before
        await answering
        assert figure(metrics, "prompt_tokens_total") == figure(metrics, "generation_tokens_total") == 3
        counts = [
            figure(metrics, "request_success_total", finished_reason=why)
            for why in ("stop", "length", "abort", "error")
        ]
        assert counts == [0, 1, 0, 0]
        assert figure(metrics, "time_to_first_token_seconds_sum") == 2
        assert figure(metrics, "inter_token_latency_seconds_sum") == 1
        assert figure(metrics, "e2e_request_latency_seconds_sum") == 3
        assert figure(metrics, "request_queue_time_seconds_sum") == 1

    async def test_an_aborted_request_is_counted_as_that(self, clock: FakeClock) -> None:
        engine = new_engine(clock)
        metrics = Metrics(engine)
        answering = asyncio.create_task(answers(engine, clock, work(3), metrics))
        await clock.advance(1.2)
        answering.cancel()
        await clock.advance(0)
        assert figure(metrics, "request_success_total", finished_reason="abort") == 1
        assert figure(metrics, "generation_tokens_total") == 1
        assert load(engine) == IDLE
