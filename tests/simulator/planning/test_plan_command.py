from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from enginehouse_sim.commands import plan

PROFILE = (
    'kind = "pass"\ndescription = "by hand"\nsource = "this test"\nobtained = "measured"\n[costs]\nfixed_ms = 100.0\n'
)


@pytest.fixture
def profile(tmp_path: Path) -> str:
    """Every pass takes 100 ms."""
    path = tmp_path / "profile.toml"
    path.write_text(PROFILE)
    return str(path)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Four requests at once, each with a single token."""
    path = tmp_path / "trace.csv"
    path.write_text("arrival,input_length,output_length\n" + "0,10,1\n" * 4)
    return str(path)


def invoke(*arguments: str) -> str:
    """One request at a time for each engine."""
    result = CliRunner().invoke(plan, [*arguments, "--max-num-seqs", "1", "--no-async-scheduling", "--jobs", "1"])
    assert result.exit_code == 0, result.output
    return result.stdout


def plan_of(*arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(invoke(*arguments, "--json"))
    return found


def test_four_fleets_by_hand(trace: str, profile: str) -> None:
    """An engine answers its n-th request after n times 100 ms."""
    found = plan_of(trace, "--profile", profile, "--slo", "ttft=150ms", "--instances", "1,2,4,8", "--price", "3.6")
    fleets = {fleet["instances"]: fleet for fleet in found["fleets"]}
    assert [fleets[n]["attainment"] for n in (1, 2, 4, 8)] == [0.25, 0.5, 1, 1]
    assert [fleets[n]["meets"] for n in (1, 2, 4, 8)] == ["no", "no", "yes", "yes"]
    assert [fleets[n]["ttft_ms"]["max"] for n in (1, 2, 4, 8)] == pytest.approx([400, 200, 100, 100])
    assert [fleets[n]["fails_first"] for n in (1, 2, 4, 8)] == ["ttft", "ttft", "", ""]
    assert (fleets[1]["bottleneck"], fleets[4]["bottleneck"]) == ("time", "")
    assert found["answer"] == fleets[4]["name"] == "4 engines"
    assert fleets[4]["cost_per_hour"] == pytest.approx(14.4)
    assert fleets[4]["cost_per_million_tokens"] == pytest.approx(14.4 * 0.1 / 3600 / 44 * 1e6, rel=1e-3)
    assert found["objectives"] == {"ttft": 0.15}


def test_an_answer_is_sure_only_if_slower_steps_meet_the_objectives_too(trace: str, profile: str) -> None:
    asked = (trace, "--profile", profile, "--slo", "ttft=150ms", "--instances", "4")
    assert plan_of(*asked)["margin_source"] == "assumed"
    unsure = plan_of(*asked, "--margin", "60%")
    assert unsure["fleets"][0]["meets"] == "unsure"
    assert unsure["fleets"][0]["fails_first"] == "ttft", "what goes wrong if steps take longer"
    assert unsure["answer"] is None


@pytest.mark.parametrize(
    ("accuracy", "margin", "source"),
    [
        ("step = 0.3", 0.3, "calibrated"),
        ("step = 0.3\nttft_p50 = -0.2\ntpot_p50 = 0.1", 0.2, "validated"),
    ],
)
def test_the_margin_is_the_error_of_the_profile(
    trace: str, profile: str, accuracy: str, margin: float, source: str
) -> None:
    Path(profile).write_text(f"{PROFILE}\n[accuracy]\n{accuracy}\n")
    found = plan_of(trace, "--profile", profile, "--slo", "ttft=150ms", "--instances", "4")
    assert (found["margin"], found["margin_source"]) == (margin, source)


def test_requests_that_never_fit_are_what_fails_first(trace: str, profile: str) -> None:
    found = plan_of(
        trace, "--profile", profile, "--slo", "ttft=1s", "--instances", "8", "--max-model-len", "10", "--seeds", "1"
    )
    fleet = found["fleets"][0]
    assert (fleet["meets"], fleet["fails_first"], fleet["bottleneck"]) == ("no", "rejected", "room")


def test_traffic_is_made_up_from_a_rate(profile: str) -> None:
    made = ("--rate", "2", "--lengths", "10:1", "--requests", "20", "--profile", profile, "--slo", "ttft=1s")
    first = invoke(*made, "--instances", "1,2", "--seeds", "2", "--json")
    assert [fleet["instances"] for fleet in json.loads(first)["fleets"]] == [1, 2]
    assert first == invoke(*made, "--instances", "1,2", "--seeds", "2", "--json")


def test_policies_are_tried_with_every_number_of_engines(trace: str, profile: str) -> None:
    told = invoke(
        *(trace, "--profile", profile, "--slo", "ttft=150ms", "--instances", "2,4", "--seeds", "1"),
        *("--set", "routing.strategy=random,round_robin"),
    )
    assert "The smallest fleet that surely has 99.0% of all requests" in told
    assert "random" in told
    assert "fails first" in told


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--slo", "ttft=1s"], "needs a TRACE or a --rate"),
        (["{trace}", "--rate", "2", "--slo", "ttft=1s"], "needs a TRACE or a --rate"),
        (["{trace}", "--slo", "ttft=1s", "--instances", "0"], "is not a list of numbers"),
        (["{trace}", "--slo", "ttft=1s", "--share", "120%"], "is not a share"),
        (["{trace}", "--slo", "speed=1s"], "has no figure"),
    ],
)
def test_bad_input_is_refused_with_a_remedy(arguments: list[str], problem: str, trace: str, profile: str) -> None:
    given = [argument.replace("{trace}", trace) for argument in arguments]
    result = CliRunner().invoke(plan, [*given, "--profile", profile])
    assert result.exit_code == 1
    assert problem in str(result.exception)


def test_a_fleet_that_answers_nothing_has_no_price_of_tokens(profile: str, tmp_path: Path) -> None:
    trace = tmp_path / "long.csv"
    trace.write_text("arrival,input_length,output_length\n0,9000,10\n")
    told = invoke(
        *(str(trace), "--profile", profile, "--slo", "ttft=1s"),
        *("--instances", "1", "--seeds", "1", "--price", "2", "--jobs", "1"),
    )
    assert "of a million tokens" in told
    assert "No fleet has" in told


def test_a_plan_needs_the_speed_of_the_engines(trace: str) -> None:
    result = CliRunner().invoke(plan, [trace, "--slo", "ttft=1s"])
    assert result.exit_code == 1
    assert "--profile" in str(result.exception)
