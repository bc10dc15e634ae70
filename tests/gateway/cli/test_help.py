"""The help of the command line fits a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from enginehouse.cli import enginehouse


def groups(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every group."""
    if isinstance(command, click.Group):
        yield path
        context = click.Context(command, info_name=path[-1] if path else "enginehouse")
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from groups(inner, (*path, name))


@pytest.mark.parametrize("path", list(groups(enginehouse)), ids=" ".join)
def test_every_line_of_a_groups_help_is_whole(path: tuple[str, ...]) -> None:
    printed = CliRunner().invoke(enginehouse, [*path, "--help"], terminal_width=80).output

    assert [line for line in printed.splitlines() if line.endswith("...") and "[ARGS]" not in line] == []


@pytest.mark.parametrize(("word", "remedy"), [("help", "--help"), ("statsu", "'status'"), ("chekc", "'check'")])
def test_an_unknown_command_says_what_to_use(word: str, remedy: str) -> None:
    result = CliRunner().invoke(enginehouse, [word])

    assert result.exit_code == 2
    assert remedy in result.output
