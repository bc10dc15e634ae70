"""Replays are the same to the last bit in pure and in compiled form, and from version to version unless meant."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.core.build import build_core
from enginehouse_sim.simulator.replay.played_engine import Replay
from enginehouse_sim.simulator.replay.report import Record
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest

CORE = CoreSettings(profile="h100-llama3-8b", constants=SchedulerConstants(total_gpu_blocks=300, max_num_seqs=24))


def traffic() -> Iterator[TraceRequest]:
    """A busy time with common prefixes; no draw of chance, whose logarithms differ between platforms."""
    for number in range(200):
        yield TraceRequest(
            arrival=number / 16,
            input_length=50 + number * 37 % 700,
            output_length=10 + number * 53 % 130,
            prefix_ids=[number % 5],
            prefix_tokens=64,
        )


def digest(record: Record) -> str:
    """All latencies, counters, engines and samples of a replay."""
    state = (
        record.times_to_first.tobytes(),
        record.durations.tobytes(),
        record.means.tobytes(),
        sorted(record.gaps.items()),
        [str(instance) for instance in record.instances],
        [str(moment) for moment in record.moments.samples],
    )
    return sha256(repr(state).encode()).hexdigest()[:16]


def test_the_latencies_and_counters_of_one_engine() -> None:
    record = Replay(traffic(), build_core(CORE, makes_text=False)).run()
    assert sum(instance.preemptions for instance in record.instances) > 0
    assert digest(record) == "96206f956185c3da"
