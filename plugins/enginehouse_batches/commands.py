"""``enginehouse batches``: the batches of a running gateway."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import click
import msgspec

from enginehouse.requests import escaped
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json, print_table


class _Counts(msgspec.Struct):
    total: int
    completed: int
    failed: int


class _Row(msgspec.Struct):
    """The part of a batch in ``/api/batches`` that is shown."""

    id: str
    status: str
    endpoint: str
    created_at: int
    request_counts: _Counts
    running: int
    waits_for: dict[str, str]
    caller: str | None = None
    errors: dict[str, Any] | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None


class _Listed(msgspec.Struct):
    batches: list[_Row]


@click.group()
def batches() -> None:
    """Show and cancel batches."""


@batches.command("list")
@gateway_options
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def list_batches(gateway: GatewayClient, as_json: bool) -> None:
    """List the newest batches of all callers."""
    answer = gateway.get("/api/batches")
    if as_json:
        print_json(answer)
        return
    rows = []
    for row in gateway.read(answer, _Listed).batches:
        counts = row.request_counts
        numbers = [str(each) for each in (counts.total, counts.completed, counts.failed, row.running)]
        rows.append((row.id, row.caller or "", row.status, *numbers, _time(row.created_at)))
    print_table(("id", "caller", "status", "lines", "done", "failed", "running", "created"), rows, lines=False)


@batches.command()
@click.argument("id")
@gateway_options
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def show(gateway: GatewayClient, id: str, as_json: bool) -> None:
    """Show the batch ID: its lines, and why those that wait do."""
    _show(gateway, gateway.get(f"/api/batches/{_checked(id)}"), as_json)


@batches.command()
@click.argument("id")
@gateway_options
@click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
def cancel(gateway: GatewayClient, id: str, as_json: bool) -> None:
    """Cancel the batch ID. What its lines have answered so far is kept."""
    _show(gateway, gateway.post("api", "batches", id, "cancel"), as_json)


def _show(gateway: GatewayClient, answer: bytes, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    row = gateway.read(answer, _Row)
    counts = row.request_counts
    click.echo(f"{row.id}: {row.status}, {row.endpoint}, of {escaped(row.caller or 'a gateway without keys')}")
    click.echo(f"{counts.total} lines: {counts.completed} served, {counts.failed} failed, {row.running} running")
    for model, why in row.waits_for.items():
        click.echo(escaped(f"{model}: {why}"))
    for error in (row.errors or {}).get("data", ()):
        click.echo(escaped(f"line {error.get('line')}: {error.get('message')}"))


def _checked(id: str) -> str:
    if not id.replace("_", "").isalnum():
        raise click.BadParameter(f"'{escaped(id)}' is not the id of a batch", param_hint="ID")
    return id


def _time(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%d %H:%M")
