"""What several commands share: options, times, and rows as comma-separated values."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

import click

from enginehouse import parse_duration
from enginehouse.requests import escaped

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


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


def utc_time(seconds: float) -> str:
    """A time since the Unix epoch: ``2026-01-31 12:00:00``."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """``rows`` as CSV. Clients choose texts, so none of them is a formula, nor has control characters."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """A spreadsheet takes a text with an apostrophe before it as it is (OWASP, CSV injection)."""
    if not isinstance(value, str):
        return value
    return f"'{escaped(value)}" if value.startswith(_FORMULA) else escaped(value)
