"""Live requests that move in virtual time, by the gateway's own planner and dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from enginehouse_sim.options import CoreSettings, SchedulerConstants
from enginehouse_sim.simulator.replay.gateway_replay import GatewayReplay, Setting
from enginehouse_sim.simulator.replay.report import Record, Report, report
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.virtual import VirtualSettings

ALWAYS = (
    ("routing.strategy", "priority_only"),
    ("rescheduling.enabled", "true"),
    ("rescheduling.policies", '["neutral_load"]'),
    ("rescheduling.neutral_load_metric", "num_requests"),
    ("rescheduling.neutral_load_threshold", "0"),
    ("rescheduling.load_balance_threshold", "2"),
    ("rescheduling.req_select_rule", "NUM_REQ"),
    ("rescheduling.req_select_value", "1"),
    ("rescheduling.cool_down", "0s"),
)
"""All requests go to the first engine, and one moves in every round until both are even."""
CORE = CoreSettings(ttft=0.2, tpot=0.02, constants=SchedulerConstants(total_gpu_blocks=4000))


def replayed(
    trace: Sequence[TraceRequest], *values: tuple[str, str], core: CoreSettings = CORE
) -> tuple[Record, Report]:
    setting = Setting(gateway=VirtualSettings(values=(*ALWAYS, *values), instances=2), core=core)
    record = GatewayReplay(trace, setting).run()
    return record, report(record)


def together(number: int, output: int) -> list[TraceRequest]:
    return [TraceRequest(arrival=n * 0.01, input_length=400, output_length=output) for n in range(number)]


@pytest.mark.parametrize("migrator", ["llumlet", "replay"])
def test_requests_move_until_both_engines_are_even(migrator: str) -> None:
    record, figures = replayed(together(8, 300), ("rescheduling.migrators", f'["{migrator}"]'))

    assert figures.requests == 8
    assert figures.output_tokens == 8 * 300
    assert figures.migrations >= 4
    assert figures.failed_migrations == 0
    assert min(each.requests for each in record.instances) >= 3
    assert sum(record.gaps.values()) == 8 * 299, "each token but the first follows another one, wherever it was made"


def test_copied_tokens_are_not_computed_again_and_the_gap_is_short() -> None:
    _, figures = replayed(together(8, 300), ("rescheduling.migrators", '["llumlet"]'))
    assert figures.migration_gap_ms.max < 100, "computing a prompt takes 200 ms"


def test_a_prompt_that_was_read_ahead_makes_the_gap_short() -> None:
    core = CoreSettings(profile="h100-llama3-8b")
    trace = [TraceRequest(arrival=n * 0.01, input_length=6000, output_length=600) for n in range(4)]
    later = ("rescheduling.interval", "2s")  # when all prompts have been read
    _, figures = replayed(trace, ("rescheduling.migrators", '["replay"]'), later, core=core)
    assert figures.migrations == 2
    assert figures.migration_gap_ms.max < 60, "computing 6,000 tokens takes 250 ms"


@pytest.mark.parametrize("migrator", ["llumlet", "replay"])
def test_a_migration_that_finds_no_request_is_no_failure(migrator: str) -> None:
    longest = (("rescheduling.req_select_rule", "TOKEN"), ("rescheduling.req_select_value", "1"))
    _, figures = replayed(together(8, 300), ("rescheduling.migrators", f'["{migrator}"]'), *longest)
    assert figures.migrations == figures.failed_migrations == 0, "each request has more tokens than may move"
    assert figures.empty_migrations > 0


def test_the_reading_ahead_of_others_hardly_delays_a_stream_that_is_cut() -> None:
    core = CoreSettings(profile="h100-llama3-8b")
    trace = [TraceRequest(arrival=n * 0.01, input_length=3000, output_length=900) for n in range(40)]
    many = (
        ("rescheduling.migrators", '["replay"]'),
        ("rescheduling.interval", "5s"),  # when all prompts have been read
        ("rescheduling.req_select_value", "20"),
        ("rescheduling.migrate_timeout", "60s"),
        ("plugins.replay.at_once", "20"),
    )
    _, figures = replayed(trace, *many, core=core)
    assert figures.migrations >= 20
    assert figures.migration_gap_ms.p99 < 200, "the prompts of all 20 take 2.3 s"


def test_without_rescheduling_nothing_moves() -> None:
    record, figures = replayed(together(8, 300), ("rescheduling.enabled", "false"))
    assert figures.migrations == 0
    assert [each.requests for each in record.instances] == [8, 0]


def test_a_replay_with_moves_is_the_same_each_time() -> None:
    first, second = (replayed(together(8, 300))[0] for _ in range(2))
    assert first.gaps == second.gaps
    assert list(first.durations) == list(second.durations)


ROLES = """
[routing]
strategy = "llumnix_load"

[rescheduling]
enabled = true
interval = "100ms"
policies = []

[backends.reads]
url = "http://reads"
driver = "sim"
role = "prefill"

[backends.answers]
url = "http://answers"
driver = "sim"
role = "decode"
"""


def test_one_engine_reads_prompts_and_another_one_answers(tmp_path: Path) -> None:
    (tmp_path / "roles.toml").write_text(ROLES)
    trace = [TraceRequest(arrival=1 + n, input_length=4000, output_length=30) for n in range(3)]
    setting = Setting(
        gateway=VirtualSettings(file=tmp_path / "roles.toml"), core=CoreSettings(profile="h100-llama3-8b")
    )
    record = GatewayReplay(trace, setting).run()
    reads, answers = record.instances

    assert (reads.requests, answers.requests) == (0, 3)
    assert reads.busy > 3 * 0.1, "each prompt takes more than 100 ms"
    assert answers.busy / answers.steps < 0.01, "no step of the other one reads a prompt"
    assert all(first > 0.1 for first in record.times_to_first)
    assert record.output_tokens == 90
