"""Output that several commands share."""

from __future__ import annotations

import click
import msgspec


def printable(text: str) -> str:
    """``text`` for rich to print as it is: its markup is escaped, and control characters are spelled out.

    Clients choose names of models and users, and a control character would steer the operator's terminal.
    """
    from rich.markup import escape  # what the command line needs to start does not include it

    return escape("".join(each if each.isprintable() or each == "\n" else ascii(each)[1:-1] for each in text))


def print_json(encoded: bytes) -> None:
    """Print JSON, indented."""
    click.echo(msgspec.json.format(encoded, indent=2))
