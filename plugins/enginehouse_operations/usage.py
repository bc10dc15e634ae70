"""``enginehouse usage``: who has used what. ``enginehouse audit``: what operators have done."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

import click
import msgspec
from rich.console import Console
from rich.table import Table

from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json, print_table, printable
from enginehouse_operations.options import csv_text, utc_time

_FIELDS = ("key", "model", "user", "day")
_FIGURES = ("requests", "failed", "tokens_in", "tokens_cached", "tokens_out", "seconds", "cost")


class _UsageAnswer(msgspec.Struct):
    rows: list[dict[str, Any]]
    total: dict[str, Any]


class _Keys(msgspec.Struct):
    keys: list[dict[str, Any]]


class _Audit(msgspec.Struct):
    entries: list[dict[str, Any]]


@click.command()
@gateway_options
@click.option(
    "--by", default="key", show_default=True, help="Fields to group by: key, model, user and day, separated by commas."
)
@click.option("--since", help="Only from this time on: 7d, a date such as 2026-01-31, or seconds since 1970.")
@click.option("--until", help="Only before this time.")
@click.option("--own", is_flag=True, help="Only the usage of the requesting key, which need not be an admin key.")
@click.option("--json", "form", flag_value="json", help="Print the gateway's answer.")
@click.option("--csv", "form", flag_value="csv", help="Print a line of values for each sum, with a heading.")
def usage(gateway: GatewayClient, by: str, since: str | None, until: str | None, own: bool, form: str | None) -> None:
    """Show the requests and tokens that callers have used.

    It also shows what these cost."""
    asked = {"by": by, "since": since, "until": until}
    query = urlencode({key: value for key, value in asked.items() if value is not None})
    answer = gateway.get(f"/{'v1' if own else 'api'}/usage?{query}")
    if form == "json":
        print_json(answer)
        return
    found = gateway.read(answer, _UsageAnswer)
    figures = (*_FIGURES, "wh") if "wh" in found.total else _FIGURES
    fields = [field.strip() for field in by.split(",")]
    columns = [*(field for field in _FIELDS if field in fields), *figures]
    if form == "csv":
        click.echo(csv_text([columns, *([row.get(column, 0) for column in columns] for row in found.rows)]), nl=False)
        return
    table = Table(box=None, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold", justify="right" if column in figures else "left")
    for row in found.rows:
        table.add_row(*(_cell(row.get(column, 0)) for column in columns))
    table.add_section()
    total = {**dict.fromkeys(_FIELDS, ""), columns[0]: "total", **found.total}
    table.add_row(*(_cell(total[column]) for column in columns))
    Console().print(table)
    if not found.rows and not own:
        _say_why(gateway)


def _say_why(gateway: GatewayClient) -> None:
    """Say why nothing was used."""
    keys = gateway.read(gateway.get("/api/keys"), _Keys).keys
    if keys:
        why = "No request of a key has ended in this time."
    else:
        why = 'A gateway without keys records no usage: set auth.keys, or usage.store = "sqlite".'
    click.echo(why, err=True)


@click.command()
@gateway_options
@click.option("--since", help="Only from this time on: 7d, a date such as 2026-01-31, or seconds since 1970.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Most entries to show.")
@click.option("--json", "as_json", is_flag=True, help="Print the gateway's answer.")
def audit(gateway: GatewayClient, since: str | None, limit: int, as_json: bool) -> None:
    """Show what operators have done, the newest first.

    Each entry says who did what, from where, and how it ended."""
    query = urlencode({"limit": limit} | ({} if since is None else {"since": since}))
    answer = gateway.get(f"/api/audit?{query}")
    if as_json:
        print_json(answer)
        return
    rows = [
        (utc_time(entry["time"]), *(str(entry[name]) for name in ("who", "address", "act", "status", "outcome")))
        for entry in gateway.read(answer, _Audit).entries
    ]
    print_table(("time", "key", "from", "act", "status", "outcome"), rows, lines=False)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{Decimal(f'{value:.6g}'):f}"  # a price of some tokens is small, and no power of ten
    return printable(str(value or 0 if isinstance(value, int) else value or ""))
