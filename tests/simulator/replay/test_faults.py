"""Engines that fail in a replay."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from enginehouse import ConfigError
from enginehouse_sim.options import CoreSettings
from enginehouse_sim.simulator.replay.faults import FaultKind, PlannedFault
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.report import Record
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.virtual import VirtualSettings
from tests.support.followed_replay import FollowedReplay

CORE = CoreSettings(ttft=0.1, tpot=0.1)
"""An answer of n tokens takes n / 10 seconds."""
FIRST = ("routing.strategy", "priority_only")
OTHER = "engine-2"


def asked(*arrivals: float, output: int = 50, stream: bool = True) -> list[TraceRequest]:
    return [TraceRequest(arrival=at, input_length=50, output_length=output, stream=stream) for at in arrivals]


def replayed(
    trace: Sequence[TraceRequest], *faults: str, values: Sequence[tuple[str, str]] = (), instances: int = 2
) -> Record:
    """All requests go to the engine called ``engine``, as long as it is healthy."""
    settings = VirtualSettings(values=(FIRST, *values), instances=instances)
    planned = tuple(map(PlannedFault.parse, faults))
    return GatewayReplay(trace, Setting(gateway=settings, core=CORE, faults=planned)).run()


def counts(record: Record) -> tuple[int, int, int, int]:
    return record.retried, record.continued, record.hedged, record.broken


# --- as text


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("gpu:kill@30", PlannedFault(engine="gpu", kind=FaultKind.KILL, at=30)),
        ("gpu:stall@1m+500ms", PlannedFault(engine="gpu", kind=FaultKind.STALL, at=60, duration=0.5)),
        ("gpu:slow=2.5@0", PlannedFault(engine="gpu", kind=FaultKind.SLOW, at=0, factor=2.5)),
        ("llama3:8b-2:refuse@1.5+10", PlannedFault(engine="llama3:8b-2", kind=FaultKind.REFUSE, at=1.5, duration=10)),
    ],
)
def test_a_fault_as_text(text: str, fault: PlannedFault) -> None:
    assert PlannedFault.parse(text) == fault


@pytest.mark.parametrize(
    "text",
    [f"gpu:{kind}@3" for kind in ("burn", "slow", "slow=", "slow=much", "slow=0", "slow=-2", "slow=nan")]
    + [f"gpu:kill@{time}" for time in ("", "soon", "3+", "-3", "3+later")]
    + ["", "gpu", "gpu:kill", "kill@3"],
)
def test_a_text_that_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a fault[\s\S]*--fault|--fault[\s\S]*is not a fault"):
        PlannedFault.parse(text)


def test_a_fault_of_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"there is no engine 'engin'.*did you mean \"engine\""):
        replayed(asked(0), "engin:kill@1")


# --- what they do


def test_another_engine_continues_the_streams_of_one_that_was_killed() -> None:
    record = replayed(asked(0, 0.5, 1), "engine:kill@2")
    assert counts(record) == (0, 3, 0, 0)
    assert (record.requests, record.output_tokens) == (3, 150), "each client gets its whole answer"
    assert [each.requests for each in record.instances] == [0, 3]
    assert max(record.durations) < 6, "no token is made twice"


def test_a_stream_that_nobody_continues_is_broken() -> None:
    record = replayed(asked(0, 0.5), "engine:kill@2", values=[("routing.broken_stream", '"error"')])
    assert counts(record) == (0, 0, 0, 2)
    assert record.rejected == {"upstream_error": 2}
    assert record.requests == 0


def test_requests_without_a_token_yet_are_retried() -> None:
    record = replayed(asked(0, 0.5), "engine:stall@0", "engine:kill@2")
    assert counts(record) == (2, 0, 0, 0)
    assert record.output_tokens == 100
    assert record.times_to_first[0] == pytest.approx(2.1)


def test_a_killed_engine_comes_back_with_an_empty_cache() -> None:
    trace = [
        TraceRequest(arrival=at, input_length=64, output_length=2, prefix_ids=(1,), prefix_tokens=48)
        for at in (0.0, 10.0, 30.0)
    ]
    whole = replayed(trace, instances=1)
    killed = replayed(trace, "engine:kill@15+5", instances=1)
    assert (whole.requests, whole.cached_tokens) == (3, 96)
    assert (killed.requests, killed.cached_tokens) == (3, 48)


def test_a_kill_ends_what_stalls_an_engine() -> None:
    record = replayed(asked(0, 60), "engine:stall@1+100", "engine:kill@2+5", instances=1)
    assert record.requests == 1
    assert record.durations[0] == pytest.approx(5.0)


def test_a_launched_engine_that_is_killed_is_launched_again(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text('[models.a]\ndriver = "sim"\n')
    setting = Setting(
        gateway=VirtualSettings(file=file), core=CORE, load_time=3.0, faults=(PlannedFault.parse("a:kill@5"),)
    )
    record = GatewayReplay(asked(0), setting).run()
    assert (record.output_tokens, record.swaps, record.continued) == (50, 2, 1)
    assert record.durations[0] == pytest.approx(3 + 5 + 3, abs=0.5)


def test_a_stalled_engine_makes_its_tokens_later() -> None:
    record = replayed(asked(0), "engine:stall@2+4", instances=1)
    assert counts(record) == (0, 0, 0, 0)
    assert record.durations[0] == pytest.approx(9.0, abs=0.11)
    assert max(record.gaps) == pytest.approx(4.1e6, abs=0.11e6)


def test_a_stall_longer_than_the_time_limits_is_a_retry_or_a_continuation() -> None:
    limits = [("timeouts.first_byte", '"3s"'), ("timeouts.stall", '"2s"'), ("checks.interval", '"1h"')]
    record = replayed(asked(0, 1.5), "engine:stall@1+60", values=limits)
    assert counts(record) == (1, 1, 0, 0)
    assert (record.requests, record.output_tokens) == (2, 100)
    alone = replayed(asked(0, 1.5), "engine:stall@1+60", values=limits, instances=1)
    assert alone.rejected == {"upstream_timeout": 2}
    assert alone.broken == 1, "the one that had begun"


def test_a_slow_engine_takes_so_many_times_as_long() -> None:
    assert replayed(asked(0), "engine:slow=2@0", instances=1).durations[0] == pytest.approx(10.0)
    for_a_while = replayed(asked(0), "engine:slow=3@1+3", instances=1)
    assert for_a_while.durations[0] == pytest.approx(7.0, abs=0.31)


def test_an_engine_that_refuses_finishes_what_it_has() -> None:
    record = replayed(asked(0, 2, 4, 10), "engine:refuse@1+5")
    assert counts(record) == (2, 0, 0, 0)
    assert [each.requests for each in record.instances] == [2, 2]
    assert record.output_tokens == 200


def test_a_slow_stream_is_asked_of_a_second_engine() -> None:
    hedging = [("routing.hedge_after", '"500ms"')]
    record = replayed(asked(0, 2, 20), "engine:stall@1+10", values=hedging)
    assert counts(record) == (0, 0, 1, 0)
    assert sorted(record.times_to_first) == pytest.approx([0.1, 0.1, 0.6])
    assert record.output_tokens == 150


def test_with_gather_an_answer_that_is_no_stream_survives_its_engine() -> None:
    trace, gather = asked(0, stream=False), [("routing.gather", "true")]
    again = replayed(trace, "engine:kill@2")
    assert (*counts(again), again.output_tokens) == (1, 0, 0, 0, 50)
    assert again.durations[0] == pytest.approx(7.0, abs=0.1)
    gathered = replayed(trace, "engine:kill@2", values=gather)
    assert (*counts(gathered), gathered.output_tokens) == (0, 1, 0, 0, 50)
    assert gathered.durations[0] == pytest.approx(5.0, abs=0.2)


def test_the_retry_budget_bounds_what_is_sent_again() -> None:
    """100 tries in ten seconds are always allowed."""
    values = [("routing.retry_budget", "0"), ("routing.max_retries", "1"), ("timeouts.first_byte", '"1s"')]
    record = replayed(asked(*[0.0] * 150, output=2), "engine:stall@0", values=values)
    assert record.retried == 100
    assert record.rejected == {"upstream_timeout": 50}


# --- the same each time


def everything(record: Record) -> object:
    measured = {"real_seconds", "costs", "moments", "instances"}
    return {name: value for name, value in msgspec.structs.asdict(record).items() if name not in measured}, str(
        record.instances
    )


def test_a_replay_with_faults_is_the_same_each_time() -> None:
    faults = ("engine:kill@2+3", "engine-2:stall@4+2", "engine-3:slow=2@1", "engine-3:refuse@6+3")
    values = [("routing.strategy", "random"), ("routing.hedge_after", '"300ms"')]
    trace = asked(*[n * 0.1 for n in range(120)], output=30)
    first, second = (replayed(trace, *faults, values=values, instances=3) for _ in range(2))
    assert min(first.retried, first.continued, first.hedged) > 0
    assert everything(first) == everything(second)


def test_the_seed_decides_what_random_chooses(tmp_path: Path) -> None:
    def places(seed: int, configured: int | None = None) -> list[str]:
        file = tmp_path / "enginehouse.toml"
        own = "" if configured is None else f"[plugins.random]\nseed = {configured}\n"
        file.write_text(f'[backends.engine]\nurl = "http://x"\ndriver = "sim"\n{own}')
        values = (("routing.strategy", "random"),)
        settings = VirtualSettings(file=file, values=values, instances=3, seed=seed)
        replay = FollowedReplay(asked(*range(20), output=1), Setting(gateway=settings, core=CORE))
        replay.run()
        return [replay.places[number] for number in sorted(replay.places)]

    assert places(1) == places(1) != places(2)
    assert places(1, configured=7) == places(2, configured=7)
    assert Counter(places(1)).keys() == {"engine", OTHER, "engine-3"}
