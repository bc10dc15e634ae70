"""Options and output that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
take_over_option = click.option(
    "--take-over",
    is_flag=True,
    help="Take over from the running gateway of the same server.name: its port, its engines and its clients.",
)


def config_option(command: Command) -> Command:
    """Add ``--config FILE``, the parameter ``config`` (``Path | None``)."""
    return click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Configuration; else $ENGINEHOUSE_CONFIG, ./enginehouse.toml, or the user's.",
    )(command)


def warn(message: object) -> None:
    """Print a warning on standard error."""
    click.secho(f"warning: {message}", err=True, fg="yellow")
