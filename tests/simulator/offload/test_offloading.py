from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from enginehouse_sim.options import CoreSettings, OffloadSettings, SchedulerConstants
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.domain.request import RequestStatus
from enginehouse_sim.simulator.replay.played_engine import Replay
from enginehouse_sim.simulator.replay.report import Report, report
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from tests.support.core_engine import NewEngine
from tests.support.hypothesis_profiles import TIMING_CHECKS


def test_no_request_is_offloaded_while_there_is_room(engine: NewEngine) -> None:
    house = engine(blocks=100)
    house.ask(40, 60)
    house.ask(40, 60)
    house.until(lambda: house.state.paused or not house.state.requests)
    assert not house.state.requests


def test_a_request_is_offloaded_before_the_blocks_run_out(engine: NewEngine) -> None:
    """Two requests of 15 blocks each in the end, and there are 24."""
    house = engine(blocks=24)
    one, other = house.ask(20, 40), house.ask(20, 40)
    house.until(lambda: house.state.paused)
    assert house.state.kv_cache.num_free_blocks >= 0
    assert house.running == ["a"]
    house.finish()
    assert house.preempted == []
    assert house.tokens == {"a": house.answer(one), "b": house.answer(other)}


def test_the_first_request_is_never_offloaded(engine: NewEngine) -> None:
    house = engine(blocks=24)
    house.ask(8, 80)
    house.ask(40, 40)
    house.until(lambda: house.state.paused)
    assert list(house.state.paused) == ["b"]


def test_a_request_goes_when_its_last_block_is_full(engine: NewEngine) -> None:
    house = engine(blocks=24)
    house.ask(21, 40)
    leaving = house.ask(22, 40)
    house.until(lambda: house.state.paused)
    assert leaving.num_computed_tokens % 4 == 0


def test_its_blocks_are_free_when_they_are_copied_and_not_sooner(engine: NewEngine) -> None:
    house = engine(blocks=24, async_scheduling=False, host_bandwidth=131072 * 16)  # 16 tokens in each step's second
    house.ask(20, 60)
    leaving = house.ask(20, 40)
    house.until(lambda: house.state.paused)
    assert leaving.num_computed_tokens == 44
    house.steps(2)
    assert len(house.state.kv_cache.get_block_ids("b")) == 11
    house.step()
    assert not house.state.kv_cache.get_block_ids("b")
    assert leaving.status is RequestStatus.PAUSED


def test_a_step_in_flight_is_over_before_its_blocks_are_copied(engine: NewEngine) -> None:
    house = engine(blocks=24, host_bandwidth=131072 * 16)
    house.ask(20, 60)
    leaving = house.ask(20, 40)
    house.until(lambda: house.state.paused)
    assert leaving.num_computed_tokens == 44
    house.until(lambda: not house.state.kv_cache.get_block_ids("b"))
    assert (leaving.num_tokens, leaving.status) == (45, RequestStatus.PAUSED)


def test_it_returns_with_the_offloaded_tokens(engine: NewEngine) -> None:
    house = engine(blocks=24)
    house.ask(20, 40)
    away = house.ask(20, 40)
    house.until(lambda: house.state.paused)
    kept = away.num_computed_tokens
    house.until(lambda: away.status is RequestStatus.RUNNING)
    assert away.num_computed_tokens >= kept
    assert away.num_preemptions == 0


def test_no_new_request_is_admitted_while_one_is_offloaded(engine: NewEngine) -> None:
    house = engine(blocks=24)
    house.ask(20, 40)
    house.ask(20, 40)
    house.until(lambda: house.state.paused)
    newcomer = house.ask(4, 4)
    while house.state.paused:
        assert not newcomer.output_token_ids
        house.step()
    house.finish()
    assert house.tokens["c"] == house.answer(newcomer)


def test_a_newcomer_waits_until_it_is_safe(engine: NewEngine) -> None:
    """It would fit now, but not for long."""
    house = engine(blocks=24)
    house.ask(60, 36)
    house.steps(2)
    newcomer = house.ask(12, 40)
    house.steps(10)
    assert newcomer.status is RequestStatus.WAITING
    house.finish()
    assert house.core.scheduler.state.totals.num_preemptions == 0


def test_an_offloaded_request_that_finishes_leaves_nothing(engine: NewEngine) -> None:
    house = engine(blocks=24)
    house.ask(20, 40)
    house.ask(20, 40)
    house.until(lambda: house.state.paused)
    house.core.scheduler.finish_requests(["b"])
    house.finish()
    assert house.state.kv_cache.num_free_blocks == 24


def test_without_room_in_host_memory_a_request_is_preempted(engine: NewEngine) -> None:
    house = engine(blocks=24, host_blocks=2)
    one, other = house.ask(20, 40), house.ask(20, 40)
    house.finish()
    assert house.preempted
    assert house.tokens == {"a": house.answer(one), "b": house.answer(other)}


def test_a_restored_request_makes_its_guaranteed_tokens_before_it_is_offloaded_again(engine: NewEngine) -> None:
    house = engine(blocks=30, offload=OffloadSettings(guaranteed_tokens=10, safe_for=8))
    requests = [house.ask(16, 60) for _ in range(3)]
    away: dict[str, int] = {}
    while house.state.requests:
        house.step()
        for request in requests:
            made = len(request.output_token_ids)
            if request.request_id in house.state.paused:
                if away.get(request.request_id, -1) != made:
                    assert made >= away.get(request.request_id, 0) + 10
                away[request.request_id] = made
    assert len(away) == 2


@settings(
    suppress_health_check=[*TIMING_CHECKS, HealthCheck.function_scoped_fixture]
)  # it makes a new engine each time
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60), st.integers(0, 30)), min_size=1, max_size=8),
    st.integers(31, 60),
    st.sampled_from([0, 3, 20, 1000]),
    st.integers(1, 40),
)
def test_every_request_gets_its_answer_and_every_block_is_given_back(
    engine: NewEngine, requests: list[tuple[int, int, int]], blocks: int, host_blocks: int, safe_for: int
) -> None:
    house = engine(blocks=blocks, host_blocks=host_blocks, offload=OffloadSettings(safe_for=safe_for))
    asked = []
    for prompt, max_tokens, wait in requests:
        asked.append(house.ask(prompt, max_tokens))
        house.steps(wait)
    house.finish()
    for request in asked:
        assert house.tokens[request.request_id] == house.answer(request)
    assert house.state.kv_cache.num_free_blocks == blocks


def run(host_blocks: int) -> Report:
    """30 requests in 4 seconds, too many for 128 blocks."""
    trace = [
        TraceRequest(arrival=n * 0.13, input_length=64 + n * 37 % 200, output_length=60 + n * 53 % 150)
        for n in range(30)
    ]
    constants = SchedulerConstants(total_gpu_blocks=129, max_num_seqs=64)
    settings = CoreSettings(constants=constants, profile="h100-llama3-8b", host_blocks=host_blocks)
    return report(Replay(trace, build_core(settings)).run())


def test_with_the_projection_fewer_requests_are_preempted_and_tokens_come_more_evenly() -> None:
    without, planned = run(host_blocks=0), run(host_blocks=1000)
    assert without.preemptions > 0
    assert planned.preemptions < without.preemptions
    assert planned.itl_ms.max < without.itl_ms.max
    assert planned.output_tokens == without.output_tokens


def test_before_step_gets_the_time(engine: NewEngine) -> None:
    house = engine(blocks=24)
    seen: list[float] = []
    house.core.before_step = seen.append
    house.ask(8, 3)
    house.finish()
    assert seen[:3] == [0.0, 1.0, 2.0]
