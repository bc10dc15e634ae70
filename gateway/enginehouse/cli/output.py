"""What several commands print."""

from __future__ import annotations

import click
import msgspec


def warn(message: object) -> None:
    """A warning, on standard error."""
    click.secho(f"warning: {message}", err=True, fg="yellow")


def print_json(encoded: bytes) -> None:
    """JSON as it is, but for its layout."""
    click.echo(msgspec.json.format(encoded, indent=2))
