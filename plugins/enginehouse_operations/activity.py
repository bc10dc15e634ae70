"""``enginehouse activity``: the last requests, and what they used."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

import click
import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import printable
from enginehouse_operations.options import csv_text

_FOLLOW_S = 1.0
_KEPT = 1000
"""A gateway knows no more ended requests."""
_SHOWN = {
    "time": "time",
    "model": "model",
    "status": "status",
    "tokens_in": "in",
    "tokens_cached": "cached",
    "tokens_out": "out",
    "prefill_rate": "in/s",
    "decode_rate": "out/s",
    "duration_ms": "ms",
    "caller": "key",
    "address": "from",
}
"""The columns of the table, each with its heading."""
_NAMES = ("model", "key", "from")
"""Those that may take two lines."""
Row = dict[str, Any]
Sleep = Callable[[float], None]


class HistoryAnswer(msgspec.Struct):
    """``GET /api/history``."""

    requests: list[Row]
    count: int


@click.command()
@gateway_options
@click.option("--limit", type=click.IntRange(1, _KEPT), default=50, show_default=True, help="Most requests to show.")
@click.option("--model", help="Only requests that named this model, or that it served.")
@click.option("--caller", help="Only requests with the key of this name.")
@click.option("--status", help="Only answers with this status, such as 404 or 5xx.")
@click.option("--json", "form", flag_value="json", help="Print each request as a JSON object on a line of its own.")
@click.option("--csv", "form", flag_value="csv", help="Print a line of values for each request, with a heading.")
@click.option("--follow", is_flag=True, help="Then show further requests as they end.")
def activity(
    gateway: GatewayClient,
    limit: int,
    model: str | None,
    caller: str | None,
    status: str | None,
    form: str | None,
    follow: bool,
) -> None:
    """Show the last requests of a running gateway, oldest first.

    It shows their tokens, rates, times and senders."""
    asked = {"limit": limit, "model": model, "key": caller, "status": status}
    query = {key: value for key, value in asked.items() if value is not None}
    batches: Iterable[Sequence[Row]] = _batches(gateway, query, follow)
    if form == "json":
        for rows in batches:
            _echo("".join(f"{msgspec.json.encode(row).decode()}\n" for row in rows))
    elif form == "csv":
        for text in csv_lines(batches):
            _echo(text)
    else:
        _print_tables(batches)


def csv_lines(batches: Iterable[Sequence[Row]]) -> Iterator[str]:
    """Each batch of rows as CSV, the first one below a heading, without their attempts."""
    columns: list[str] = []
    for rows in batches:
        lines: list[Sequence[Any]] = []
        if rows and not columns:
            columns = [name for name, value in rows[0].items() if not isinstance(value, list)]
            lines.append(columns)
        lines += [[row.get(column) for column in columns] for row in rows]
        yield csv_text(lines)


def _batches(gateway: GatewayClient, query: dict[str, Any], follow: bool, sleep: Sleep = time.sleep) -> Iterator[Any]:
    """The rows that the gateway has, oldest first; with ``follow``, later ones too, without end."""
    after = 0
    while True:
        answer = gateway.get(f"/api/history?{urlencode({**query, 'after': after})}")
        found = gateway.read(answer, HistoryAnswer)
        yield found.requests[::-1]
        if not follow:
            return
        after = 0 if found.count < after else max([row["number"] for row in found.requests], default=after)  # restarted
        query["limit"] = _KEPT
        sleep(_FOLLOW_S)


def _print_tables(batches: Iterable[Sequence[Row]]) -> None:
    console = Console()
    for number, rows in enumerate(batches):
        if not rows and number:
            continue
        table = Table(box=None, show_header=not number, padding=(0, 1, 0, 0))
        for heading in _SHOWN.values():
            table.add_column(heading, overflow="fold", no_wrap=heading not in _NAMES)
        for row in rows:
            table.add_row(*(_cell(key, row.get(key)) for key in _SHOWN))
        console.print(table)


def _cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if key == "time":
        return datetime.fromtimestamp(value).strftime("%H:%M:%S")
    return f"{value:.1f}" if isinstance(value, float) else printable(str(value))


def _echo(text: str) -> None:
    if text:
        click.echo(text, nl=False)
