"""Options of commands that pages name in their text or show at a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from enginehouse.cli import enginehouse as cli
from tests.support.doc_pages import page_text
from tests.support.paths import ROOT
from tests.system.docs.test_links import PAGES

INSTALLED = [page for page in PAGES if ROOT / "contrib" not in page.parents]
"""Pages about commands that this installation has."""
_COMMAND = re.compile(r"(?:`|^\$ )enginehouse ([^`\n|]+)", re.MULTILINE)
_OPTION = re.compile(r"(?:^|(?<=[\s\[]))--[a-z][\w-]*")


def commands(page: Path) -> Iterator[tuple[str, set[str]]]:
    """The commands that ``page`` names, each with its options."""
    for line in _COMMAND.findall(page_text(page)):
        yield line, set(_OPTION.findall(line.partition(" -- ")[0]))  # what follows is another program's


def known(line: str) -> set[str]:
    """The options of the command that ``line`` names."""
    context = click.Context(cli)
    command: click.Command = cli
    options = {"--help", *_names(command)}
    for word in line.split():
        if not isinstance(command, click.Group) or (found := command.get_command(context, word)) is None:
            break
        command = found
        options |= _names(command)
    return options


def _names(command: click.Command) -> set[str]:
    return {name for each in command.params for name in (*each.opts, *each.secondary_opts)}


@pytest.mark.parametrize("page", INSTALLED, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_options_of_commands_exist(page: Path) -> None:
    wrong = [(line, sorted(options - known(line))) for line, options in commands(page) if options]
    assert [each for each in wrong if each[1]] == []


def test_commands_are_found() -> None:
    found = [line for page in INSTALLED for line, options in commands(page) if options]
    assert any(line.startswith("plugins new NAME --kind") for line in found)
