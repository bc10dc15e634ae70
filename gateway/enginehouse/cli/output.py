"""Output that several commands share."""

from __future__ import annotations

import click


def warn(message: object) -> None:
    """Print a warning on standard error."""
    click.secho(f"warning: {message}", err=True, fg="yellow")
