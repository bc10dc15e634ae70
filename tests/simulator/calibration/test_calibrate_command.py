from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse.testing.engines import SimEngine
from enginehouse_sim.commands import sim
from enginehouse_sim.simulator.calibration.fit import StepWork, prompt_work
from enginehouse_sim.simulator.calibration.records import ServedRequest, observations_of
from enginehouse_sim.simulator.steps.costs import PassCosts
from enginehouse_sim.simulator.steps.models import PassSteps, StepLoad
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


def test_an_engine_is_calibrated_over_http_and_an_interrupted_run_goes_on(tmp_path: Path) -> None:
    """How good a fit is, recorded runs show: here, other processes may take the processor from the engine."""
    known, output = tmp_path / "known.toml", tmp_path / "engine.toml"
    known.write_text(KNOWN)
    with SimEngine("m", profile=str(known), max_num_seqs=3, max_model_len=2048) as engine:
        asked = ["calibrate", engine.url, "--model", "m", "-o", str(output), "--budget", "0s", "--force", "--json"]
        asked += ["--max-streams", "4", "--max-prompt", "300", "--plot", str(tmp_path / "fit.svg")]
        output.mkdir()
        first = CliRunner().invoke(sim, asked)
        assert first.exit_code == 1, "it cannot write the profile, so the run does not end"
        output.rmdir()
        requests = len(engine.requests())
        again = CliRunner().invoke(sim, asked)
        assert again.exit_code == 0, again.output
        assert len(engine.requests()) <= requests + 1, "only the look at the engine: all probes are in the journal"
        assert "goes on with its probes" in again.stderr
        profile = load_profile(str(output))
        anew = CliRunner().invoke(sim, asked)
        assert len(engine.requests()) > requests + 2, "a run after one that has ended probes anew"
        assert "goes on" not in anew.stderr
    found = json.loads(first.stdout)
    assert json.loads(again.stdout) == found
    assert set(found["errors"]) == {"prompt", "decode", "mixed", "waiting"}
    assert found["prefix_cache"]["whole_ms"] >= found["prefix_cache"]["rest_ms"]
    assert found["prefix_cache"]["measured_ms"] > 0
    assert found["engine"].startswith("m on vllm")
    assert "up to 3 streams and prompts of up to 300 tokens" in first.stderr
    assert (profile.limits.max_num_seqs, profile.limits.max_model_len) == (3, 2048)
    assert profile.steps.seconds(StepLoad(decodes=4, active_kv_tokens=400)) > 0
    assert "<svg" in (tmp_path / "fit.svg").read_text(encoding="utf-8")


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
        there = ["--gateway", engine.url, "--model", "m", "--save", "--plot", str(tmp_path / "out.svg")]
        result = CliRunner().invoke(sim, [*asked, *there])
        assert result.exit_code == 0, result.output
        sent = [request.path for request in engine.requests()]
    again = CliRunner().invoke(sim, asked)
    assert json.loads(again.stdout) == json.loads(result.stdout), "the file has what the engine did"
    other = CliRunner().invoke(sim, [*asked, "--limit", "9"])
    assert "has no runs of this trace" in other.output
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
    assert "<svg" in (tmp_path / "out.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["calibrate", "-o", "x.toml"], "needs the URL of an engine"),
        (["calibrate", "http://127.0.0.1:9", "--model", "m", "-o", "x.toml"], "http://127.0.0.1:9 cannot be measured"),
        (["calibrate", "127.0.0.1:9", "--model", "m", "-o", "x.toml"], "write http://HOST:PORT"),
        (["calibrate", "http://127.0.0.1:99999", "--model", "m", "-o", "x.toml"], "write http://HOST:PORT"),
        (["calibrate", "http://127.0.0.1:9", "--model", "m", "-o", "x"], "is no .toml file"),
        (["calibrate", "-o", "x.toml", "--from-traces", "missing.json"], "missing.json"),
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
    assert problem in result.output


def test_an_unknown_model_is_refused_with_those_there_are(tmp_path: Path) -> None:
    with SimEngine("m") as engine:
        result = CliRunner().invoke(sim, ["calibrate", engine.url, "--model", "n", "-o", str(tmp_path / "x.toml")])
    assert result.exit_code == 1
    assert "has no model 'n'; it has m" in result.output


# --- records of real traffic

COSTS = PassCosts(fixed_ms=10, token_ms=0.1, pair_ms=1e-4, kv_token_ms=1e-3, sequence_ms=1, prompt_ms=2)


def alone(number: int, tokens_in: int, tokens_out: int) -> ServedRequest:
    """A request that the engine served alone, by the costs."""
    sent, steps = 1000.0 * number, PassSteps(COSTS)
    pairs = tokens_in * (tokens_in + 1) // 2
    first = sent + 0.003 + steps.seconds(StepLoad(prefill_tokens=tokens_in, own_pairs=pairs, first_tokens=1))
    decode = sum(steps.seconds(StepLoad(decodes=1, active_kv_tokens=tokens_in + made)) for made in range(1, tokens_out))
    return ServedRequest(
        model="m", sent=sent, first_byte=first, ended=first + decode, tokens_in=tokens_in, tokens_out=tokens_out
    )


def test_records_of_lone_requests_tell_prompts_and_decodes_apart() -> None:
    prompt, answer = sorted(observations_of([alone(0, 200, 50)], "m"), key=lambda each: each.kind, reverse=True)
    assert prompt.work == [prompt_work(200)]
    assert prompt.ms == pytest.approx(3 + prompt_work(200).milliseconds(COSTS))
    assert answer.work == [StepWork(passes=49, decodes=1, kv_tokens=225)]
    assert answer.predicted(COSTS, 0) == pytest.approx(answer.ms, rel=0.01)


def test_records_of_overlapping_requests_count_each_other() -> None:
    first = ServedRequest(model="m", sent=0, first_byte=1, ended=11, tokens_in=100, tokens_out=101)
    second = ServedRequest(model="m", sent=2, first_byte=6, ended=16, tokens_in=60, tokens_cached=20, tokens_out=101)
    found = {each.point: each for each in observations_of([first, second], "m")}
    plain, mixed = found["answer 0"].work
    assert (plain.passes, plain.decodes) == (99, 1.5), "half of the time, the other one ran too"
    assert (mixed.passes, mixed.prompt_tokens, mixed.pairs) == (1, 40, 40 * 20 + 40 * 41 / 2)
    assert found["answer 0"].ms == 10_000


def test_a_profile_is_fitted_to_saved_records(tmp_path: Path) -> None:
    records = [alone(n, tokens_in, 30) for n, tokens_in in enumerate((20, 40, 80, 150, 300, 600, 1200, 2400, 4000))]
    history = tmp_path / "history.json"
    served = [{name: getattr(each, name) for name in each.__struct_fields__} for each in records]
    history.write_text(json.dumps({"requests": [{**each, "path": "/v1/completions"} for each in served]}))
    output = tmp_path / "engine.toml"
    asked = ["calibrate", "--from-traces", str(history), "--model", "m", "-o", str(output), "--json"]
    result = CliRunner().invoke(sim, asked)
    assert result.exit_code == 0, result.output
    steps = load_profile(str(output)).steps
    load = StepLoad(decodes=1, active_kv_tokens=500)
    assert steps.seconds(load) == pytest.approx(PassSteps(COSTS).seconds(load), rel=0.03)
