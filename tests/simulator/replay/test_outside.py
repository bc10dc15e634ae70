from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse_sim.commands import sim
from enginehouse_sim.simulator.replay.played_engine import entering
from enginehouse_sim.simulator.replay.traces.reader import TraceRequest
from enginehouse_sim.simulator.steps.profile import OutsideCosts

PROFILE = """
kind = "pass"
description = "by hand"
source = "this test"
obtained = "measured"
[costs]
fixed_ms = 10.0
[outside]
request_ms = 30.0
prompt_token_ms = 0.5
[limits]
max_num_seqs = 1
max_model_len = 50
"""


@pytest.fixture
def profile(tmp_path: Path) -> str:
    path = tmp_path / "profile.toml"
    path.write_text(PROFILE)
    return str(path)


def test_each_request_that_waits_for_a_place_makes_a_step_longer(tmp_path: Path) -> None:
    profile, trace = tmp_path / "waiting.toml", tmp_path / "three.csv"
    profile.write_text(PROFILE.partition("[outside]")[0] + "waiting_ms = 2.0\n")
    trace.write_text("arrival,input_length,output_length\n" + "0,20,3\n" * 3)
    flags = ["--profile", str(profile), "--max-num-seqs", "1", "--no-async-scheduling"]
    result = CliRunner().invoke(sim, ["replay", str(trace), *flags, "--json"])
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["steps"] == 9
    assert figures["virtual_seconds"] == pytest.approx(0.001 * 3 * (14 + 12 + 10))


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text("arrival,input_length,output_length\n0,20,1\n10,40,1\n20,60,1\n")
    return str(path)


@pytest.mark.parametrize("through", [[], ["--instances", "2"]])
def test_what_is_outside_of_the_engine_delays_the_first_token(trace: str, profile: str, through: list[str]) -> None:
    result = CliRunner().invoke(sim, ["replay", trace, "--profile", profile, "--json", *through])
    figures = json.loads(result.stdout)
    if through:
        figures = figures["variants"][0]
    assert figures["ttft_ms"]["p50"] == pytest.approx(30 + 0.5 * 20 + 10)
    assert figures["ttft_ms"]["max"] == pytest.approx(30 + 0.5 * 40 + 10)
    assert figures["rejected"] == 1, "the limits of the profile hold: 60 tokens are too many"


def test_a_flag_wins_over_the_limits_of_the_profile(trace: str, profile: str) -> None:
    result = CliRunner().invoke(sim, ["replay", trace, "--profile", profile, "--json", "--max-model-len", "100"])
    assert json.loads(result.stdout)["requests"] == 3


def test_a_short_prompt_may_overtake_a_long_one() -> None:
    trace = [
        TraceRequest(arrival=at, input_length=length, output_length=1) for at, length in ((0, 100), (1, 1), (9, 1))
    ]
    times, numbers, _ = zip(*entering(trace, OutsideCosts(request_ms=500, prompt_token_ms=50)), strict=True)
    assert numbers == (1, 0, 2)
    assert times == pytest.approx((1.55, 5.5, 9.55))
