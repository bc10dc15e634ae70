"""What the command line imports, and so how fast it starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from enginehouse.cli import enginehouse
from enginehouse.cli.lazy_commands import LazyCommands

HEAVY = ("enginehouse.app", "enginehouse.config.schema", "enginehouse.relay", "msgspec", "starlette", "uvicorn")
NAMED = "import sys; from enginehouse.cli import main\ntry: main()\nfinally: print(*sys.modules, file=sys.stderr)"


def modules(*arguments: str, **variables: str) -> tuple[str, set[str]]:
    """What the command line prints, and the modules that it has imported then."""
    done = subprocess.run(
        [sys.executable, "-c", NAMED, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        timeout=50,
        check=True,
    )
    return done.stdout, set(done.stderr.split())


def test_the_version_is_told_without_the_gateway() -> None:
    printed, imported = modules("--version")
    assert printed.startswith("enginehouse, version ")
    assert printed.endswith(("compiled\n", "pure Python\n"))
    assert imported.isdisjoint(HEAVY)


def test_commands_are_completed_without_the_gateway() -> None:
    words = {"COMP_WORDS": "enginehouse un", "COMP_CWORD": "1", "_ENGINEHOUSE_COMPLETE": "bash_complete"}
    printed, imported = modules(**words)
    assert printed.split() == ["plain,undrain", "plain,unload"]
    assert imported.isdisjoint(HEAVY)


def test_every_command_is_where_it_is_said_to_be() -> None:
    commands = enginehouse.commands
    assert isinstance(commands, LazyCommands)
    assert len(commands) == len(list(commands)) > 10
    assert {name: commands[name].name for name in commands} == {name: name for name in commands}


def test_an_unknown_command_is_none_and_others_can_be_taken_out() -> None:
    commands = LazyCommands({"a": "enginehouse.cli.check:check"})
    assert commands.get("b") is None
    assert "a" in commands
    assert commands["a"].name == "check"
    del commands["a"]
    assert list(commands) == []
    with pytest.raises(KeyError):
        commands["a"]
