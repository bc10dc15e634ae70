from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse import EnginehouseError
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
    assert re.search(r"answered requests +│ +5 │", told)
    assert "ttft p99" in told
    assert "bold" not in told


def test_steps_are_the_whole_plan(trace: str) -> None:
    steps = [json.loads(line) for line in invoke("steps", trace, "--json").splitlines()]
    numbers = [step["step"] for step in steps]
    assert numbers == sorted(set(numbers))  # those planned behind the last step of a busy time are not made
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
    assert "line 2" in str(result.exception)


def test_refused_requests_are_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "two.csv"
    path.write_text("arrival,input_length,output_length\n0,100,11\n1,9000,1\n")
    figures = json.loads(invoke("replay", str(path), "--json", "--slo", "ttft=1s,tpot=1s,latency=1m"))
    assert (figures["requests"], figures["rejected"], figures["slo_attainment"]) == (1, 1, 0.5)
    assert figures["rejections"] == {"invalid_request": 1}
    assert figures["ttft_ms"]["p50"] > 0
    assert "rejected: 1 invalid_request" in invoke("replay", str(path))


def test_a_replay_that_answers_nothing_has_figures_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    path.write_text("arrival,input_length,output_length\n0,9000,1\n")
    assert re.search(r"answered requests +│ +0 │", invoke("replay", str(path)))


@pytest.mark.parametrize("arguments", [("replay", "--speedup", "nan"), ("trace", "--rate", "inf")])
def test_a_number_is_finite(arguments: tuple[str, ...], trace: str) -> None:
    result = CliRunner().invoke(sim, [*arguments, *([trace] if arguments[0] == "replay" else [])])
    assert result.exit_code == 2
    assert "is not a finite number" in result.output


# --- variants


@pytest.fixture
def gateway(tmp_path: Path) -> str:
    path = tmp_path / "gateway.toml"
    path.write_text('[backends.gpu]\ndriver = "sim"\nurl = "http://127.0.0.1:1"\nmodels = ["m"]\n')
    return str(path)


@pytest.mark.long
def test_variants_stand_side_by_side(trace: str, gateway: str) -> None:
    strategies = ("--set", "routing.strategy=round_robin,priority_only")
    command = ("replay", trace, "--config", gateway, "--instances", "2", *strategies)
    found = json.loads(invoke(*command, "--json"))
    assert list(found) == ["variants"]
    turns, first = found["variants"]
    assert (turns["name"], first["name"]) == ("routing.strategy=round_robin", "routing.strategy=priority_only")
    assert [each["requests"] for each in turns["per_instance"]] == [6, 6]
    assert [each["requests"] for each in first["per_instance"]] == [12, 0]
    alone = json.loads(invoke("replay", trace, "--json"))
    assert alone.keys() | {"name"} == turns.keys()
    table = invoke(*command)
    assert "priority_only" in table
    assert "ttft p99" in table


def test_a_strategy_that_does_not_exist_is_not_replayed_as_another_one(trace: str, gateway: str) -> None:
    asked = ["replay", trace, "--config", gateway, "--set", "routing.strategy=smrt"]
    result = CliRunner().invoke(sim, asked)
    assert result.exit_code == 1
    assert "there is no strategy 'smrt'" in str(result.exception)


@pytest.mark.long
def test_variants_are_the_product_of_all_choices(trace: str) -> None:
    choices = ("--set", "routing.strategy=smart,random", "--set", "routing.max_retries=1,2")
    found = json.loads(invoke("replay", trace, "--limit", "2", "--json", *choices))
    assert [each["name"] for each in found["variants"]] == [
        f"routing.strategy={strategy}, routing.max_retries={retries}"
        for strategy in ("smart", "random")
        for retries in (1, 2)
    ]


def test_one_configuration_is_one_variant(trace: str, gateway: str) -> None:
    [only] = json.loads(invoke("replay", trace, "--config", gateway, "--json"))["variants"]
    assert only["name"] == "as configured"
    assert re.search(r"answered requests +│ +12 │", invoke("replay", trace, "--instances", "2"))


def test_tables_and_lists_are_values_too(trace: str) -> None:
    weights = "{priority = 0, load = 100, latency = 0}"
    found = json.loads(invoke("replay", trace, "--json", "--set", f"routing.weights={weights}"))
    assert [each["name"] for each in found["variants"]] == [f"routing.weights={weights}"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--set", "routing.strategy"), "write KEY=A,B"),
        (("--set", "routing.strateg=smart"), 'did you mean "strategy"?'),
        (("--set", "scheduling.swapper=group,nothing"), "nothing"),
        (("--config", "none.toml"), "there is no such file"),
        (("--slo", "speed=1s"), "has no figure 'speed'"),
        (("--slo", "ttft=soon"), "ttft"),
        (("--fault", "engine:burn@3"), "write ENGINE:KIND@TIME[+DURATION]"),
        (("--fault", "gpu:kill@3"), "there is no engine 'gpu'"),
    ],
)
def test_errors_are_reported_in_one_line(trace: str, arguments: tuple[str, ...], told: str) -> None:
    result = CliRunner().invoke(sim, ["replay", trace, *arguments])
    assert result.exit_code == 1
    assert told in str(result.exception)
    assert isinstance(result.exception, EnginehouseError)


def test_faults_are_injected_and_their_effects_counted(trace: str, gateway: str) -> None:
    faults = ("--fault", "gpu:stall@0.5", "--fault", "gpu:kill@1s+1s")
    command = ("replay", trace, "--config", gateway, "--instances", "2", "--set", "routing.strategy=priority_only")
    [found] = json.loads(invoke(*command, *faults, "--json"))["variants"]
    assert (found["requests"], found["retried"], found["continued"], found["broken"]) == (12, 2, 1, 0)
    assert re.search(r"sent again +│ +2 │", invoke(*command, *faults))
    [whole] = json.loads(invoke(*command, "--json"))["variants"]
    assert (whole["retried"], whole["continued"], whole["hedged"], whole["broken"]) == (0, 0, 0, 0)


def test_the_keys_of_a_trace_have_their_limits(tmp_path: Path) -> None:
    file, trace = tmp_path / "gateway.toml", tmp_path / "keys.csv"
    key = '[[auth.keys]]\nname = "team"\nkey = "secret"\nmax_concurrent = 1\n'
    file.write_text(f'[backends.gpu]\ndriver = "sim"\nurl = "http://gpu"\n{key}')
    rows = ["0,10,100,team", "0,10,1,team", "0,10,1,"]
    trace.write_text("arrival,input_length,output_length,key\n" + "\n".join(rows))
    [found] = json.loads(invoke("replay", str(trace), "--config", str(file), "--json"))["variants"]
    assert (found["requests"], found["rejections"]) == (2, {"rate_limited": 1})
    trace.write_text("arrival,input_length,output_length,key\n0,10,1,team\n1,10,1,other\n")
    result = CliRunner().invoke(sim, ["replay", str(trace), "--config", str(file)])
    assert result.exit_code == 1
    assert "The configuration has no key 'other'" in str(result.exception)
    assert isinstance(result.exception, EnginehouseError)


# --- made traces and profiles


def test_a_made_trace_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    path.write_text(invoke("trace", "--requests", "20", "--rate", "50", "--lengths", "40:3", "--models", "a,b"))
    file = tmp_path / "gateway.toml"
    file.write_text('[backends.x]\nurl = "http://x"\nmodels = ["a"]\n[backends.y]\nurl = "http://x"\nmodels = ["b"]\n')
    [only] = json.loads(invoke("replay", str(path), "--config", str(file), "--json"))["variants"]
    assert only["output_tokens"] == 60
    assert all(each["requests"] for each in only["per_instance"])


def test_an_unknown_profile_is_named(trace: str) -> None:
    result = CliRunner().invoke(sim, ["replay", trace, "--profile", "h1000"])
    assert result.exit_code == 1
    assert "There is no profile 'h1000'" in str(result.exception)


# --- chance


def test_the_same_command_prints_the_same_figures_but_for_real_times(trace: str, gateway: str) -> None:
    asked = ("replay", trace, "--config", gateway, "--instances", "3", "--set", "routing.strategy=random", "--json")

    def figures(seed: int) -> object:
        variant = json.loads(invoke(*asked, "--seed", str(seed)))["variants"][0]
        for real in ("real_seconds", "speed"):
            del variant[real]
        return variant

    assert figures(1) == figures(1)
    assert figures(1) != figures(2), "the strategy takes the replay's seed"


def test_a_replay_imports_no_server() -> None:
    script = "import sys, enginehouse_sim.simulator.replay.gateway_replay; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout.split()
    assert "enginehouse_sim.simulator.server.batching_engine" not in loaded
    assert "enginehouse_sim.simulator.server.application" not in loaded
