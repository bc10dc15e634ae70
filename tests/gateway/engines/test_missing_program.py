"""What a launch line lacks on this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from enginehouse.engines.missing_program import missing_program


def python(folder: Path, status: int) -> str:
    """An interpreter in ``folder`` that ends with ``status`` when it is asked; returns the folder as a ``PATH``."""
    folder.mkdir()
    script = folder / "python"
    script.write_text(f"#!/bin/sh\nexit {status}\n")
    script.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (["nosuchprogram", "-m", "m.gguf"], "there is no program 'nosuchprogram' on the PATH"),
        ([sys.executable, "-m", "enginehouse.nosuch"], ""),
        (
            [sys.executable, "-m", "nosuchpackage.serve"],
            f"'{sys.executable}' on the PATH has no package 'nosuchpackage'",
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
    assert missing_program(command, python(tmp_path / "without", 3)) == "'python' on the PATH has no package 'sglang'"
    assert missing_program(command, python(tmp_path / "broken", 1)) == "", "the launch will say why"
