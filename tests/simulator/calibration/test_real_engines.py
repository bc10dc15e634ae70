"""The accuracy that docs/how-to/plan-capacity.md states, with what real engines did.

``recorded/ENGINE`` has the probes that ``sim calibrate`` sent to an engine, and what the engine did with traces in the
same minutes by ``sim validate --measured``, behind a gateway or asked directly. The profile is fitted and the traces
are replayed again each time.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from enginehouse_sim.commands import sim
from enginehouse_sim.simulator.calibration.calibrate import calibrated
from enginehouse_sim.simulator.calibration.fit import Observation
from enginehouse_sim.simulator.replay.traces.workload import Workload, write
from enginehouse_sim.simulator.steps.profile import EngineLimits, write_profile

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parent / "recorded"
LENGTHS = "50-600:20-120"
RATES = {
    "llama-server": {"light": 3.0, "busy": 8.0, "saturated": 25.0},
    "llama-server-direct": {"busy": 8.0, "saturated": 25.0},
    "vllm": {"light": 5.0, "busy": 14.0, "saturated": 35.0},
}
"""Requests in a second; the traces have 100. An engine that is asked directly holds the waiting ones itself."""
SEEDS = {"light": 1, "busy": 2, "saturated": 3}
MEDIAN, P99, TWICE = 0.15, 0.30, 2.0
"""The errors that may be, or else twice the engine's own spread between two runs."""
STATED = {("llama-server", "saturated", "ttft_ms p50"): 0.165}
"""The figures that are further off, as the docs say."""


class _Recorded(msgspec.Struct):
    """A probe that was carried out."""

    observations: list[Observation]


def profile_of(engine: str, folder: Path) -> Path:
    """The profile that the recorded probes give."""
    recorded = RECORDED / engine
    _, *lines = (recorded / "probes.jsonl").read_bytes().splitlines()
    observations = [each for line in lines for each in msgspec.json.decode(line, type=_Recorded).observations]
    limits = msgspec.json.decode((recorded / "limits.json").read_bytes(), type=EngineLimits)
    profile = folder / "engine.toml"
    write_profile(profile, calibrated(observations, engine, limits, "recorded probes").profile)
    return profile


@pytest.mark.parametrize("engine", RATES)
def test_predictions_are_as_close_as_the_docs_say(engine: str, tmp_path: Path) -> None:
    profile = profile_of(engine, tmp_path)
    for name, rate in RATES[engine].items():
        trace = tmp_path / f"{name}.jsonl"
        with trace.open("wb") as file:
            write(Workload(rate=rate, lengths=LENGTHS, seed=SEEDS[name]).requests(100), file)
        asked = ["validate", str(trace), "--profile", str(profile), "--json"]
        result = CliRunner().invoke(sim, [*asked, "--measured", str(RECORDED / engine / f"{name}.json")])
        assert result.exit_code == 0, result.output
        for figure in json.loads(result.stdout)["figures"]:
            latency, _, share = figure["figure"].partition(" ")
            if latency not in ("ttft_ms", "tpot_ms", "latency_ms") or share == "p90":
                continue
            allowed = max(MEDIAN if share == "p50" else P99, TWICE * figure["spread"])
            allowed = STATED.get((engine, name, figure["figure"]), allowed)
            assert abs(figure["error"]) <= allowed, f"{name}: {figure}"
