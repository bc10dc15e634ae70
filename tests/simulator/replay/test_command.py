from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse_sim.commands import sim

TRACE = "arrival,input_length,output_length,prefix_ids,prefix_tokens\n" + "".join(
    f"{n * 0.2},{40 + n * 7},{5 + n % 4},{n % 3},32\n" for n in range(12)
)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE, encoding="utf-8")
    return str(path)


def invoke(*arguments: str) -> str:
    result = CliRunner().invoke(sim, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_replay_reports_what_happened(trace: str) -> None:
    counters = json.loads(invoke("replay", trace, "--json", "--profile", "polynomial"))
    assert counters["requests"] == 12
    assert counters["input_tokens"] == sum(40 + n * 7 for n in range(12))
    assert counters["output_tokens"] == sum(5 + n % 4 for n in range(12))
    assert counters["cached_tokens"] == 9 * 32
    assert counters["ttft_ms"]["p50"] >= 16.5, "a prefill takes no less"
    assert sum(cost["steps"] for cost in counters["step_costs"]) == counters["steps"]


def test_a_lone_request_takes_what_the_flags_say(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("arrival,input_length,output_length\n3,100,11\n")
    counters = json.loads(invoke("replay", str(path), "--json", "--ttft", "80ms", "--tpot", "5ms"))
    assert counters["ttft_ms"]["max"] == pytest.approx(80)
    assert counters["latency_ms"]["max"] == pytest.approx(130)
    assert counters["itl_ms"]["p99"] == counters["tpot_ms"]["p99"] == pytest.approx(5)
    assert counters["virtual_seconds"] == pytest.approx(0.13)


def test_a_replay_for_people(trace: str) -> None:
    told = invoke("replay", trace, "--limit", "5")
    assert "5 requests" in told
    assert "ttft" in told


def test_a_picture_of_a_replay(trace: str, tmp_path: Path) -> None:
    picture = tmp_path / "out.svg"
    invoke("replay", trace, "--plot", str(picture))
    assert "<svg" in picture.read_text(encoding="utf-8")


def test_a_picture_in_an_unknown_format_is_refused(trace: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(sim, ["replay", trace, "--plot", str(tmp_path / "out.xyz")])
    assert result.exit_code == 1
    assert "xyz" in result.output


def test_steps_are_the_whole_plan(trace: str) -> None:
    steps = [json.loads(line) for line in invoke("steps", trace, "--json").splitlines()]
    assert [step["step"] for step in steps] == list(range(len(steps)))
    first = steps[0]
    assert first["new_requests"][0]["request_id"] == "0"
    assert first["num_scheduled_tokens"] == {"0": 40}
    assert first["total_num_scheduled_tokens"] == 40
    told = {name for step in steps for name in step["finished_req_ids"]}
    assert told >= {str(n) for n in range(11)}


def test_steps_for_people(trace: str) -> None:
    assert "step 0: 0: 40" in invoke("steps", trace, "--limit", "1").splitlines()[0]


def test_the_same_trace_takes_the_same_steps_byte_for_byte(trace: str) -> None:
    def steps(seed: str) -> bytes:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-m", "enginehouse", "sim", "steps", trace, "--json", "--num-gpu-blocks", "16"]
        return subprocess.run(command, env=environment, capture_output=True, check=True).stdout

    first = steps("1")
    assert first.count(b"\n") > 20
    assert first == steps("2")


def test_an_invalid_trace_is_reported_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("arrival,input_length,output_length\n1,x,1\n")
    result = CliRunner().invoke(sim, ["replay", str(path)])
    assert result.exit_code == 1
    assert "line 2" in result.output


def test_an_unknown_profile_is_named(trace: str) -> None:
    result = CliRunner().invoke(sim, ["replay", trace, "--profile", "h1000"])
    assert result.exit_code == 1
    assert "There is no profile 'h1000'" in result.output
