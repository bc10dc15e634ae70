from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse.config.load_config import load_config
from enginehouse.domain.errors import ConfigError
from enginehouse_importers.llama_swap.convert import CORS

TEXT = """
logRequests: true
models:
  a: {cmd: "llama-server --port ${PORT}", compat: {ignoreWebsockets: true}}
  b: {cmd: "llama-server --port ${PORT}", compat: {ignoreWebsockets: true}}
"""
EVERY_FILE = {"server": {"cors": ["*"]}, "compat": {"llama_swap": True}}
COMMAND = {"driver": "llamacpp", "command": "llama-server --port ${port}"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(TEXT)
    return file


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(enginehouse, ["import", "llama-swap", *map(str, arguments)])


def test_toml_goes_to_standard_output_and_notes_to_standard_error(file: Path) -> None:
    result = run(file)
    assert result.exit_code == 0
    assert msgspec.toml.decode(result.stdout) == {**EVERY_FILE, "models": {"a": COMMAND, "b": COMMAND}}
    lines = result.stderr.splitlines()
    assert [line.partition(": left out")[0] for line in lines] == [
        "note: models.a.compat, models.b.compat",
        f"note: CORS: {CORS}",
        "note: logRequests",
    ]


def test_json_has_both(file: Path) -> None:
    result = run(file, "--json")
    printed = json.loads(result.stdout)
    assert printed["config"] == {**EVERY_FILE, "models": {"a": COMMAND, "b": COMMAND}}
    assert [note["key"] for note in printed["notes"]] == ["models.a.compat", "models.b.compat", "CORS", "logRequests"]
    assert all(note["note"] for note in printed["notes"])
    assert result.stderr == ""


def test_a_new_file_can_be_written_and_used(file: Path, tmp_path: Path) -> None:
    output = tmp_path / "enginehouse.toml"
    result = run(file, "--output", output)
    assert result.stdout == ""
    assert "logRequests" in result.stderr
    assert set(load_config(output, {}).config.models) == {"a", "b"}


def test_a_file_that_is_there_is_left_alone(file: Path) -> None:
    result = run(file, "--output", file)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception) == f"{file}: is there already (name a new file)"
    assert file.read_text() == TEXT


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"models: [a\nx: 1", "config.yaml:2:2: not valid YAML: did not find expected ',' or ']'"),
        (b"- a\n", "config.yaml: is not a mapping of settings"),
        (b"a: \x07", "config.yaml: not valid YAML: "),
        (b"\xff", "config.yaml: is not UTF-8 text (byte 0)"),
    ],
)
def test_an_invalid_file_is_refused(content: bytes, problem: str, file: Path) -> None:
    file.write_bytes(content)
    result = run(file)
    assert isinstance(result.exception, ConfigError)
    assert problem in str(result.exception)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in str(run(tmp_path / "none.yaml").exception)
