"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from enginehouse.config.units import parse_duration

Command = TypeVar("Command", bound=Callable[..., Any])


def config_option(command: Command) -> Command:
    """Add ``--config FILE``, the parameter ``config`` (``Path | None``)."""
    return click.option(
        "--config",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Configuration; else $ENGINEHOUSE_CONFIG, ./enginehouse.toml, or the user's.",
    )(command)


class Duration(click.ParamType[float]):
    """The seconds of a text such as ``30s``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


answer_as_json = click.option("--json", "as_json", is_flag=True, help="Print the gateway's answer.")
"""Passes ``as_json``, for a command that otherwise says in words what the gateway answered."""

take_over_option = click.option(
    "--take-over",
    is_flag=True,
    help="Take over from the running gateway of the same server.name: its port, its engines and its clients.",
)
