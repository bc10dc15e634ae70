from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse_kit.engines import SimEngine
from enginehouse_sim.commands import sim
from enginehouse_sim.simulator.steps.costs import StepLoad
from enginehouse_sim.simulator.steps.profile import load_profile

KNOWN = """
kind = "pass"
description = "known"
source = "by hand"
obtained = "published"
[costs]
fixed_ms = 10.0
token_ms = 0.1
sequence_ms = 1.0
"""


def test_an_engine_is_calibrated_over_http(tmp_path: Path) -> None:
    """How good a fit is, recorded runs show: here, other processes may take the processor from the engine."""
    known, output = tmp_path / "known.toml", tmp_path / "engine.toml"
    known.write_text(KNOWN)
    with SimEngine("m", profile=str(known), max_num_seqs=3, max_model_len=2048) as engine:
        asked = ["calibrate", engine.url, "--model", "m", "-o", str(output), "--budget", "0s", "--force", "--json"]
        result = CliRunner().invoke(sim, [*asked, "--max-streams", "4", "--max-prompt", "300"])
        assert result.exit_code == 0, result.output
    profile, found = load_profile(str(output)), json.loads(result.stdout)
    assert set(found["errors"]) == {"prompt", "decode", "mixed", "waiting"}
    assert found["prefix_cache"]["whole_ms"] >= found["prefix_cache"]["rest_ms"]
    assert found["prefix_cache"]["measured_ms"] > 0
    assert found["engine"].startswith("m on vllm")
    assert "up to 3 streams and prompts of up to 300 tokens" in result.stderr
    assert (profile.limits.max_num_seqs, profile.limits.max_model_len) == (3, 2048)
    assert profile.steps.seconds(StepLoad(decodes=4, active_kv_tokens=400)) > 0


def test_a_dry_run_only_looks_at_the_engine(tmp_path: Path) -> None:
    with SimEngine("m", ttft="1ms", tpot="1ms") as engine:
        asked = ["calibrate", engine.url, "--model", "m", "-o", str(tmp_path / "out.toml"), "--dry-run"]
        result = CliRunner().invoke(sim, asked)
        assert result.exit_code == 0, result.output
        assert len(engine.requests()) == 1
    assert not list(tmp_path.iterdir())


def test_a_replay_is_compared_with_the_engine(tmp_path: Path) -> None:
    profile, trace = tmp_path / "known.toml", tmp_path / "trace.csv"
    profile.write_text(KNOWN)
    trace.write_text("arrival,input_length,output_length\n" + "".join(f"{n / 10},{20 + n},4\n" for n in range(10)))
    with SimEngine("m", profile=str(profile)) as engine:
        asked = ["validate", str(trace), "--profile", str(profile), "--measured", str(tmp_path / "runs.json"), "--json"]
        there = ["--gateway", engine.url, "--model", "m", "--save"]
        result = CliRunner().invoke(sim, [*asked, *there])
        assert result.exit_code == 0, result.output
        sent = [request.path for request in engine.requests()]
    again = CliRunner().invoke(sim, asked)
    assert json.loads(again.stdout) == json.loads(result.stdout), "the file has what the engine did"
    other = CliRunner().invoke(sim, [*asked, "--limit", "9"])
    assert "has no runs of this trace" in str(other.exception)
    found = json.loads(result.stdout)
    assert sent == ["/v1/completions"] * 20, "two runs"
    assert (found["requests"], found["runs"], found["failed"]) == (10, 2, 0)
    figures = {each["figure"]: each for each in found["figures"]}
    assert figures["tpot_ms p50"]["predicted"] == pytest.approx(11.1)
    assert figures["tpot_ms p50"]["measured"] > 0
    assert figures["tpot_ms p50"]["spread"] is not None
    saved = load_profile(str(profile)).accuracy
    assert saved is not None
    assert saved.tpot_p50 == figures["tpot_ms p50"]["error"]
    assert saved.requests == 10


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["calibrate", "-o", "x.toml"], "needs the URL of an engine"),
        (["calibrate", "http://127.0.0.1:9", "--model", "m", "-o", "x.toml"], "http://127.0.0.1:9 cannot be measured"),
        (["calibrate", "127.0.0.1:9", "--model", "m", "-o", "x.toml"], "write http://HOST:PORT"),
        (["calibrate", "http://127.0.0.1:99999", "--model", "m", "-o", "x.toml"], "write http://HOST:PORT"),
        (["calibrate", "http://127.0.0.1:9", "--model", "m", "-o", "x"], "is no .toml file"),
        (["validate", "x.csv", "--gateway", "http://x", "--model", "m"], "nothing to validate"),
        (
            ["validate", "x.csv", "--gateway", "http://x", "--model", "m", "--profile", "polynomial", "--save"],
            "cannot write into a bundled profile",
        ),
        (["validate", "x.csv", "--profile", "polynomial"], "x.csv"),
    ],
)
def test_bad_input_is_refused_with_a_reason(arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(sim, arguments)
    assert result.exit_code == 1
    assert problem in str(result.exception)


def test_an_unknown_model_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with SimEngine("m") as engine:
        result = CliRunner().invoke(sim, ["calibrate", engine.url, "--model", "n", "-o", str(tmp_path / "x.toml")])
    assert result.exit_code == 1
    assert "has no model 'n'; it has m" in str(result.exception)
