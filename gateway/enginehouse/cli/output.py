"""Output that several commands share."""

from __future__ import annotations

import click
import msgspec


def warn(message: object) -> None:
    """Print a warning on standard error."""
    click.secho(f"warning: {message}", err=True, fg="yellow")


def print_json(encoded: bytes) -> None:
    """Print JSON, indented."""
    click.echo(msgspec.json.format(encoded, indent=2))
