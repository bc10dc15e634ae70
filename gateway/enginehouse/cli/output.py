"""Output that several commands share."""

from __future__ import annotations

import click


def warn(message: object) -> None:
    """Print a warning on standard error."""
    click.secho(f"warning: {message}", err=True, fg="yellow")


def print_json(encoded: bytes) -> None:
    """Print JSON, indented."""
    import msgspec  # what the command line needs to start does not include it

    click.echo(msgspec.json.format(encoded, indent=2))
