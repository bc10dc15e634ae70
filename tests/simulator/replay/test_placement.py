"""What the strategy ``cache_aware`` makes of traffic on which simpler ones fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.replay.faults import PlannedFault
from enginehouse_sim.simulator.replay.gateway_replay import Setting
from enginehouse_sim.simulator.replay.report import Record
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.virtual import VirtualSettings
from tests.support.followed_replay import FollowedReplay

BLOCK = 64


def asks(at: float, blocks: Iterable[int], output: int = 10, *, stream: bool = True) -> TraceRequest:
    ids = list(blocks)
    return TraceRequest(
        arrival=at,
        input_length=len(ids) * BLOCK + 7,
        output_length=output,
        prefix_ids=ids,
        prefix_tokens=BLOCK,
        stream=stream,
    )


both_kinds = pytest.mark.parametrize("stream", [True, False], ids=["streams", "plain answers"])


def replayed(
    trace: Iterable[TraceRequest], engines: int, *faults: str, slots: int = 64, room: int = 100_000, **parameters: int
) -> tuple[Record, Counter[str]]:
    """Replay ``trace`` on engines whose caches have ``room`` tokens; the record, and the requests of each engine."""
    constants = SchedulerConstants(total_gpu_blocks=room // 16, max_num_seqs=slots)
    values = [("routing.strategy", "cache_aware")]
    values += [(f"plugins.cache_aware.{key}", str(value)) for key, value in parameters.items()]
    setting = Setting(
        gateway=VirtualSettings(instances=engines, values=tuple(values)),
        core=CoreSettings(profile="h100-llama3-8b", constants=constants),
        faults=tuple(map(PlannedFault.parse, faults)),
    )
    replay = FollowedReplay(iter(trace), setting)
    return replay.run(), Counter(replay.places.values())


@both_kinds
def test_conversations_spread_over_the_caches_that_have_room_for_them(stream: bool) -> None:
    turns = [
        asks(turn * 6 + which, range(1000 * which, 1000 * which + 17), stream=stream)
        for turn in range(6)
        for which in range(6)
    ]
    record, _ = replayed(turns, 2, room=4096, cache_tokens=4096)
    ever_cached = record.input_tokens * 5 / 6
    assert record.cached_tokens > 0.95 * ever_cached


@pytest.mark.long
@both_kinds
def test_requests_with_one_beginning_share_the_slots_of_all_engines(stream: bool) -> None:
    rounds = [
        asks(5.0 * round, [*range(17), 100 + 10 * round + n], output=100, stream=stream)
        for round in range(20)
        for n in range(8)
    ]
    _, places = replayed([asks(-5.0, range(17), output=100, stream=stream), *rounds], 2, slots=2)
    assert min(places.values()) >= 80
    record, _ = replayed(rounds, 2, slots=2)
    even, _ = replayed([asks(0, range(9), output=100, stream=stream)] * 2, 1, slots=2)
    assert max(record.durations) < 1.25 * 2 * max(even.durations)


@both_kinds
def test_requests_in_sequence_spread_over_equal_engines(stream: bool) -> None:
    _, places = replayed([asks(n, range(100 * n, 100 * n + 9), stream=stream) for n in range(40)], 8)
    assert sorted(places.values()) == pytest.approx([5] * 8, abs=2)


@both_kinds
def test_one_late_answer_shuts_no_engine_out(stream: bool) -> None:
    trace = [asks(n, range(100 * n, 100 * n + 9), stream=stream) for n in range(140)]
    late = [f"engine:stall@{at}.0+0.1" for at in (10, 11)]
    _, places = replayed(trace, 2, *late)
    assert min(places.values()) >= 60


def test_four_cold_models_end_two_and_two_on_two_hosts(tmp_path: Path) -> None:
    file = tmp_path / "enginehouse.toml"
    models = [f'[models.m{number}]\ndriver = "sim"\nhost = ["h1", "h2"]' for number in range(4)]
    file.write_text("\n".join(["hosts = { h1 = {}, h2 = {} }", *models]))
    trace = [msgspec.structs.replace(asks(0.01 * n, [n]), model=f"m{n}") for n in range(4)]
    setting = Setting(gateway=VirtualSettings(file=file), core=CoreSettings(profile="h100-llama3-8b"), load_time=3.0)
    replay = FollowedReplay(iter(trace), setting)
    record = replay.run()
    assert sorted(place.endswith("-2") for place in replay.places.values()) == [False, False, True, True]
    assert max(record.times_to_first) < 2.5 * 3.0


def test_an_engine_at_half_speed_gets_less() -> None:
    trace = [asks(n * 0.05, range(100 * n, 100 * n + 30), output=50) for n in range(300)]
    _, places = replayed(trace, 4, "engine-4:slow=2@0", slots=4)
    assert places["engine-4"] < 0.75 * places["engine"]
