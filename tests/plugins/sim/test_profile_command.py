from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from enginehouse_rescheduling.latency import BUNDLED, first_token_grid, output_token_grid
from enginehouse_sim.commands import sim


@pytest.fixture
def written(tmp_path: Path) -> dict[str, Path]:
    paths = {name: tmp_path / f"{name}.json" for name in ("ttft", "tpot")}
    files = [flag for name, path in paths.items() for flag in (f"--{name}", str(path))]
    result = CliRunner().invoke(sim, ["profile", "h100-llama3-8b", *files])
    assert result.exit_code == 0, result.output
    return paths


def test_the_files_predict_what_the_profile_says(written: dict[str, Path]) -> None:
    prompts, decodes = first_token_grid(str(written["ttft"])), output_token_grid(str(written["tpot"]))

    assert prompts.value(512, 0) == pytest.approx(14.595, abs=0.001)
    assert decodes.value(1, 8) < decodes.value(64, 1024) < decodes.value(100, 3000) < float("inf")


def test_the_files_have_llumnix_form(written: dict[str, Path]) -> None:
    content = msgspec.json.decode(written["tpot"].read_bytes())

    assert content["metadata"].keys() == {"model", "timestamp", "description"}
    assert content["results"][0].keys() == {
        *("batch_size", "tokens_per_request"),
        *("mean", "std", "min", "max", "p50", "p95", "p99", "raw_data"),
    }


@pytest.mark.parametrize("name", ["ttft", "tpot"])
def test_the_bundled_pair_is_made_by_the_command(written: dict[str, Path], name: str) -> None:
    assert (BUNDLED / f"{name}.json").read_bytes() == written[name].read_bytes()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(sim, ["profile", "polynomial", "--ttft", str(tmp_path), "--tpot", str(tmp_path / "t")])

    assert result.exit_code == 1
    assert str(tmp_path) in str(result.exception)
