"""Traces through the decisions of a gateway, over simulated engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.played_engine import Replay
from enginehouse_sim.simulator.replay.report import Record, Slo, report
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.simulator.replay.traces.workload import Workload
from enginehouse_sim.virtual import VirtualSettings
from tests.support.followed_replay import FollowedReplay

SLOW = CoreSettings(ttft=1.0, tpot=0.1)


def every(seconds: float, number: int, output: int = 11, model: str = "") -> list[TraceRequest]:
    return [
        TraceRequest(arrival=n * seconds, input_length=50, output_length=output, model=model) for n in range(number)
    ]


def replayed(trace: Iterable[TraceRequest], setting: Setting) -> tuple[Record, list[str]]:
    """The record, and the backend of each request."""
    replay = FollowedReplay(trace, setting)
    return replay.run(), [replay.places[number] for number in sorted(replay.places)]


def engines(number: int, *values: tuple[str, str], file: Path | None = None) -> VirtualSettings:
    return VirtualSettings(file=file, values=values, instances=number)


def test_one_engine_behind_a_gateway_does_what_it_does_alone() -> None:
    workload, slo = Workload(rate=20, lengths="20-400:1-200", prefix_sharing=0.3), Slo(ttft=0.1)
    core = CoreSettings(profile="polynomial", constants=SchedulerConstants(total_gpu_blocks=200, max_num_seqs=300))
    alone = Replay(workload.requests(300), build_core(core, makes_text=False), slo).run()
    behind, _ = replayed(workload.requests(300), Setting(gateway=engines(1), core=core, slo=slo))
    assert sum(instance.preemptions for instance in alone.instances) > 0
    assert 0 < alone.attained < 300
    for field in ("attained", "cached_tokens", "output_tokens", "times_to_first", "means", "durations", "gaps"):
        assert getattr(behind, field) == pytest.approx(getattr(alone, field)), field


def test_a_heartbeat_is_no_first_token() -> None:
    core = CoreSettings(ttft=5.0, tpot=0.1, constants=SchedulerConstants(max_num_seqs=1))
    times = [
        replayed(every(1, 3), Setting(gateway=engines(1, ("streams.heartbeat", heartbeat)), core=core))[
            0
        ].times_to_first
        for heartbeat in ("0s", "1s")
    ]
    assert times[1] == times[0]
    assert min(times[1]) >= 5


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_looking_ahead_changes_nothing(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Neither alone nor behind a gateway, whose rescheduler looks at the engines and moves streams."""
    workload = Workload(rate=30, lengths="20-400:1-200", prefix_sharing=0.3, seed=seed)
    core = CoreSettings(profile="polynomial", constants=SchedulerConstants(total_gpu_blocks=300, max_num_seqs=300))
    choices = engines(
        3,
        ("rescheduling.enabled", "true"),
        ("rescheduling.policies", '["neutral_load"]'),
        ("rescheduling.migrators", '["replay"]'),
        ("rescheduling.neutral_load_threshold", "0.01"),
        ("routing.strategy", "priority_only"),
    )
    ahead, _ = replayed(workload.requests(150), Setting(gateway=choices, core=core))
    alone = Replay(workload.requests(150), build_core(core, makes_text=False)).run()
    one_by_one = Replay(workload.requests(150), build_core(core, makes_text=False))
    num_steps = sum(1 for _ in one_by_one.steps())
    assert num_steps == sum(instance.steps for instance in alone.instances)
    assert figures(alone) == figures(one_by_one.record)
    monkeypatch.setattr(GatewayReplay, "looks_ahead", False)
    behind, _ = replayed(workload.requests(150), Setting(gateway=choices, core=core))
    assert ahead.move_gaps
    assert figures(ahead) == figures(behind)


def figures(record: Record) -> dict[str, Any]:
    """All that a record says of the virtual engines."""
    measured = {"real_seconds", "costs", "moments"}
    return {name: value for name, value in msgspec.structs.asdict(record).items() if name not in measured} | {
        "moments": record.moments.samples,
        "instances": str(record.instances),
    }


def test_round_robin_takes_turns_and_smart_avoids_a_busy_engine() -> None:
    trace = every(0.5, 6)
    for strategy, places in (
        ("round_robin", ["engine", "engine-2"] * 3),
        ("priority_only", ["engine"] * 6),
    ):
        setting = Setting(gateway=engines(2, ("routing.strategy", strategy)), core=SLOW)
        assert replayed(trace, setting)[1] == places
    weights = "{priority = 0, load = 100, latency = 0}"
    setting = Setting(gateway=engines(2, ("routing.weights", weights)), core=SLOW)
    long_first = [TraceRequest(arrival=0, input_length=50, output_length=200), *every(5, 4, output=2)[1:]]
    assert replayed(long_first, setting)[1] == ["engine", "engine-2", "engine-2", "engine-2"]


def test_an_engines_own_limit_makes_requests_wait_at_the_gateway() -> None:
    core = CoreSettings(ttft=1.0, tpot=0.0, constants=SchedulerConstants(max_num_seqs=1))
    record, _ = replayed(every(0, 3, output=1), Setting(gateway=engines(1), core=core))
    assert list(record.times_to_first) == pytest.approx([1.0, 2.0, 3.0])


def test_what_cannot_be_served_is_counted_apart() -> None:
    trace = [
        TraceRequest(arrival=0, input_length=50, output_length=1),
        TraceRequest(arrival=1, input_length=9000, output_length=1),
        TraceRequest(arrival=2, input_length=8190, output_length=100),
        TraceRequest(arrival=3, input_length=50, output_length=1, model="unknown"),
    ]
    record, _ = replayed(trace, Setting(gateway=engines(1), slo=Slo(ttft=10)))
    figures = report(record)
    assert figures.rejections == {"context_length_exceeded": 1, "invalid_request": 1, "model_not_found": 1}
    assert (figures.requests, figures.rejected, figures.slo_attainment) == (1, 3, 0.25)
    assert figures.ttft_ms.max == pytest.approx(50)


def test_a_full_queue_rejects() -> None:
    core = CoreSettings(ttft=1.0, tpot=0.0, constants=SchedulerConstants(max_num_seqs=1))
    setting = Setting(gateway=engines(1, ("scheduling.max_queue", "2")), core=core)
    record, _ = replayed(every(0, 5, output=1), setting)
    assert record.rejected == {"queue_full": 2}


@pytest.fixture
def two_models(tmp_path: Path) -> Path:
    file = tmp_path / "enginehouse.toml"
    file.write_text(
        '[models.a]\ndriver = "sim"\nargs = ["--ttft", "2s", "--start-delay", "1s"]\n[models.b]\ndriver = "sim"\n'
    )
    return file


def test_models_that_exclude_each_other_are_swapped_and_loading_takes_its_time(two_models: Path) -> None:
    trace = [*every(0, 1, output=1, model="a"), *every(0, 1, output=1, model="b")]
    setting = Setting(gateway=VirtualSettings(file=two_models), core=CoreSettings(ttft=0.5), load_time=10)
    record, places = replayed(trace, setting)
    assert places == ["a", "b"]
    assert list(record.times_to_first) == pytest.approx([12.0, 22.5], abs=0.2), "the flags of a launched model win"
    assert record.swaps == 2
    assert report(record).swaps == 2


def test_a_model_that_was_stopped_has_an_empty_cache(two_models: Path) -> None:
    asks = {"input_length": 64, "output_length": 1, "prefix_ids": (1,), "prefix_tokens": 48}
    order = [("a", 0.0), ("a", 100.0), ("b", 200.0), ("a", 300.0)]
    trace = [TraceRequest(arrival=at, model=model, **asks) for model, at in order]  # type: ignore[arg-type]
    record, _ = replayed(trace, Setting(gateway=VirtualSettings(file=two_models)))
    assert record.cached_tokens == 48


def test_figures_of_instances_add_up() -> None:
    workload = Workload(rate=20, lengths="20-400:1-60", prefix_sharing=0.4)
    setting = Setting(gateway=engines(3, ("routing.strategy", "random"), ("plugins.random.seed", "1")))
    record, places = replayed(workload.requests(400), setting)
    figures = report(record)
    assert {each.name: each.requests for each in figures.per_instance} == Counter(places)
    for field in ("requests", "input_tokens", "output_tokens", "preemptions", "steps"):
        assert sum(getattr(each, field) for each in figures.per_instance) == getattr(figures, field), field
    assert 1 < figures.imbalance < 3
    assert 0 < figures.cache_hit_ratio < 0.4
    assert figures.ttft_ms.p50 <= figures.ttft_ms.p99 <= figures.latency_ms.max


def test_a_trace_is_read_as_its_requests_come() -> None:
    read = 0

    def trace() -> Iterator[TraceRequest]:
        nonlocal read
        for read, request in enumerate(every(1, 500, output=2)):
            assert read - replay.record.requests <= 3
            yield request

    replay = GatewayReplay(trace(), Setting(gateway=engines(2)))
    assert replay.run().requests == 500
    assert read == 499


def test_the_options_of_a_launched_model_count(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text('[models.a]\ndriver = "sim"\ncontext_length = 100\n[models.a.options]\nttft = "3s"\n')
    setting = Setting(gateway=VirtualSettings(file=file), load_time=0)
    record, _ = replayed([TraceRequest(arrival=0, input_length=50, output_length=n) for n in (1, 51)], setting)
    assert list(record.times_to_first) == [pytest.approx(3.0, abs=0.1)]
    assert report(record).rejections == {"invalid_request": 1}


TWO_HOSTS = """
hosts = { a = {}, b = {} }
[routing]
strategy = "round_robin"
[models.m]
driver = "sim"
host = ["a", "b"]
replicas = 2
"""


def test_a_model_has_its_replicas_on_each_of_its_hosts(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text(TWO_HOSTS)
    record, places = replayed(every(20, 4), Setting(gateway=VirtualSettings(file=file), core=SLOW))
    assert places == ["m", "m-2", "m-3", "m-4"]
    assert record.swaps == 2 + 2, "a group of each host runs both of its engines"
