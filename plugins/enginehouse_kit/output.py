"""Output that several commands share."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Sequence

import click
import msgspec

from enginehouse.requests import escaped

__all__ = ["print_json", "printable"]

_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,32}m)")
_UNFINISHED = re.compile(r"\r\Z|\x1b(?:\[[0-9;]{0,32})?\Z")
_RETURN = re.compile(r"\r\n?")


def printable(text: str) -> str:
    """``text`` for rich to print as it is: its markup is escaped, and control characters are spelled out.

    Clients choose names of models and users, and a control character would steer the operator's terminal.
    """
    from rich.markup import escape  # what the command line needs to start does not include it

    return escape(escaped(text))


def coloured_text(pieces: Iterable[bytes]) -> Iterator[str]:
    """The text of ``pieces`` for a terminal: of its control characters, ends of lines and colours stay.

    Engines print what clients send, and a control character would steer the operator's terminal.
    """
    decoder, rest = getincrementaldecoder("utf-8")(errors="replace"), ""
    for piece in pieces:
        text = rest + decoder.decode(piece)
        rest = found.group() if (found := _UNFINISHED.search(text)) else ""
        yield _coloured(text[: len(text) - len(rest)])
    yield _coloured(rest + decoder.decode(b"", final=True))


def _coloured(text: str) -> str:
    parts = _COLOUR.split(_RETURN.sub("\n", text))
    return "".join(part if number % 2 else escaped(part) for number, part in enumerate(parts))


def print_json(encoded: bytes) -> None:
    """Print JSON, indented."""
    click.echo(msgspec.json.format(encoded, indent=2))


def print_answer(encoded: bytes, as_json: bool, text: str) -> None:
    """Print JSON if that is asked for, else ``text``, which says the same to people."""
    if as_json:
        print_json(encoded)
    else:
        click.echo(text)


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, lines: bool = True, empty: str = "") -> None:
    """Print a table of texts, which go on in the next line where there is little room.

    ``lines``: with lines around the cells. ``empty``: printed in place of a table without rows.
    """
    from rich.console import Console  # many commands print no table
    from rich.table import Table

    table = Table() if lines else Table(box=None, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    Console().print(table if table.rows or not empty else empty)
