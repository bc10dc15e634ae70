"""What a launch line lacks on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from enginehouse_local.launcher import missing_program


def python(folder: Path, status: int) -> dict[str, str]:
    """An environment whose interpreter, in ``folder``, ends with ``status`` when it is asked."""
    folder.mkdir()
    script = folder / "python"
    script.write_text(f"#!/bin/sh\nexit {status}\n")
    script.chmod(0o755)
    return {"PATH": str(folder)}


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (["nosuchprogram", "-m", "m.gguf"], "there is no program 'nosuchprogram' on the PATH"),
        ([sys.executable, "-m", "enginehouse.nosuch"], ""),
        (
            [sys.executable, "-m", "nosuchpackage.serve"],
            f"'{sys.executable}' has no package 'nosuchpackage'",
        ),
        (["sh", "-m", "nosuchpackage"], ""),
        ([sys.executable, "nosuchpackage.py"], ""),
    ],
)
def test_a_program_may_be_missing_or_a_package_of_python(command: list[str], missing: str) -> None:
    assert missing_program(command) == missing


def test_the_interpreter_of_the_path_is_asked(tmp_path: Path) -> None:
    command = ["python", "-m", "sglang.launch_server"]
    assert missing_program(command, python(tmp_path / "with", 0)) == ""
    assert missing_program(command, python(tmp_path / "without", 3)) == "'python' has no package 'sglang'"
    assert missing_program(command, python(tmp_path / "broken", 1)) == "", "the launch will say why"


def test_a_module_may_lie_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engine_here.py").touch()
    monkeypatch.chdir(tmp_path)
    assert missing_program([sys.executable, "-m", "engine_here"]) == ""


def test_a_module_may_lie_where_the_environment_of_the_engine_says(tmp_path: Path) -> None:
    (tmp_path / "engine_there.py").touch()
    command = [sys.executable, "-m", "engine_there"]
    assert missing_program(command, {"PYTHONPATH": str(tmp_path)}) == ""
    assert missing_program(command, {}) != ""
