"""Runs the pages of the documentation that are sessions at a terminal, and compares what they show.

A `toml`, `json` or `python` block is saved under the file name that stands last before it, if there is one. A `console`
block is typed into bash: lines after `$` are commands, the others are what they print, where `...` stands for anything.
A block whose output does not come at once, because engines start or die, is typed again until it does. `sh` blocks are
not run: they install things.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.support.paths import DOCS

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NAMED_FILE = re.compile(r"`([\w-]+\.(?:toml|json|py))`[^`]*\Z")
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n?", re.MULTILINE)
_SAVED = ("toml", "json", "python")
PORTS = ("8080", "8001", "8002")
_PATIENCE_S = 60.0
"""How long a block is typed again until it prints what the page shows."""
_LONGEST_S = 240.0
"""Far more than a block takes on a busy machine."""


class Block(NamedTuple):
    language: str
    text: str
    file: str


def blocks(page: str) -> Iterator[Block]:
    at = 0
    for found in _BLOCK.finditer(page):
        named = _NAMED_FILE.search(page[at : found.start()]) if found[1] in _SAVED else None
        yield Block(found[1], found[2], named[1] if named else "")
        at = found.end()


class Terminal:
    """A bash that reads what the page says and runs it."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        self._typed = 0
        self.output = ""

    def type(self, commands: str) -> str:
        """Run commands; what was printed meanwhile."""
        assert self._bash.stdin is not None
        self._typed += 1
        before, mark = len(self.output), f"-- end of block {self._typed} --"
        self._bash.stdin.write(f"{commands}\necho '{mark}'\n".encode())
        self._bash.stdin.flush()
        self.read_until(mark)
        return self.output[before:].replace(mark, "")

    def read_until(self, text: str, times: int = 1) -> None:
        """Wait until ``text`` has been printed that often."""
        assert self._bash.stdout is not None
        end = time.monotonic() + _LONGEST_S
        while self.output.count(text) < times:
            readable, _, _ = select.select([self._bash.stdout], [], [], max(0.0, end - time.monotonic()))
            piece = os.read(self._bash.stdout.fileno(), 1 << 16) if readable else b""
            if not piece:
                raise AssertionError(f"{text!r} did not appear {times} times in:\n{self.output}")
            self.output += piece.decode()

    def close(self) -> None:
        """End bash and all that runs in it."""
        try:
            self._bash.communicate(b"kill $(jobs -p); wait\n", _PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._bash.pid, signal.SIGKILL)
            self._bash.communicate()
            raise


def follow(page: str, terminal: Terminal, ports: Mapping[str, str], folder: Path) -> None:
    """Do what the page says, in ``folder``, with other ports than those that it names."""
    text = (DOCS / page).read_text(encoding="utf-8")
    for named, free in ports.items():
        text = text.replace(named, free)
    servers = 0
    ran = 0
    for block in blocks(text):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            commands = _COMMAND.findall(block.text)
            assert commands, f"there is no command in this block:\n{block.text}"
            started = sum(command.endswith(" &") for command in commands)
            servers += started
            _run(terminal, "\n".join(commands), _COMMAND.sub("", block.text), servers if started else 0)
            ran += 1
    assert ran


def _run(terminal: Terminal, commands: str, promised: str, servers: int) -> None:
    """Type the commands until they print the promised text; only once if they start servers."""
    before = len(terminal.output)
    end = time.monotonic() + _PATIENCE_S
    printed = terminal.type(commands)
    if servers:
        terminal.read_until("listening on", servers)
        printed = terminal.output[before:]
    while not shows(printed, promised):
        if servers or time.monotonic() > end:
            raise AssertionError(f"{commands}\nprints\n{printed}\nand not\n{promised}")
        printed = terminal.type(commands)


def shows(printed: str, promised: str) -> bool:
    """Whether the output has the text, but for durations, the drawing of tables, and what ``...`` stands for."""
    pattern = ".*?".join(re.escape(piece) for piece in _plain(promised).split("..."))
    return re.search(pattern, _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    words = re.sub(r"[\s\u2500-\u257f]+", " ", text).strip()
    return re.sub(r"\d+(?= m?s\b)", "N", words)
