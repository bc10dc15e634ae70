"""``enginehouse pull``, ``list``, ``show`` and ``rm``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from tests.support.played_hub import PlayedHub, played_hub

NAME = "hf.co/google/gemma-GGUF:Q8_0"


@pytest.fixture
def hub() -> Iterator[PlayedHub]:
    with played_hub() as hub:
        hub.repositories["google/gemma-GGUF"] = {"gemma-Q8_0.gguf": b"weights"}
        yield hub


@pytest.fixture
def run(hub: PlayedHub, tmp_path: Path) -> Callable[..., Result]:
    config = tmp_path / "enginehouse.toml"
    config.write_text(f'[pull]\nhub = "{hub.url}"\nfolder = "{tmp_path}/models"\n')
    runner = CliRunner(env={"ENGINEHOUSE_CONFIG": str(config), "COLUMNS": "200"})
    return lambda *arguments: runner.invoke(enginehouse, arguments, standalone_mode=False)


def test_a_model_is_pulled_listed_shown_and_removed(run: Callable[..., Result], tmp_path: Path) -> None:
    path = tmp_path / "models/google/gemma-GGUF/gemma-Q8_0.gguf"

    assert f"{path}\nServe it: enginehouse run {path}\n" in run("pull", NAME).output

    [listed] = json.loads(run("list", "--json").stdout)
    assert (listed["name"], listed["path"], listed["size"]) == (NAME, str(path), 7)
    assert json.loads(run("show", "gemma-Q8_0", "--json").stdout) == listed
    assert "7 bytes" in run("list").stdout
    assert run("rm", NAME, "--yes").stdout == f"{NAME} is deleted\n"
    assert not path.exists()
    assert json.loads(run("list", "--json").stdout) == []


def test_a_model_that_is_not_there_is_told_with_those_that_are(run: Callable[..., Result]) -> None:
    run("pull", NAME)

    assert f"there are {NAME}" in str(run("show", "qwen").exception)
    assert "did you mean" in str(run("rm", "hf.co/google/gema-GGUF:Q8_0", "--yes").exception)


def test_nothing_is_removed_without_a_yes(run: Callable[..., Result], tmp_path: Path) -> None:
    run("pull", NAME)

    run("rm", NAME)

    assert list((tmp_path / "models").rglob("*.gguf"))
