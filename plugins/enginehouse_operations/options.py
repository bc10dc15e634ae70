"""Options that several commands share."""

from __future__ import annotations

from typing import Any

import click

from enginehouse import parse_duration


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
