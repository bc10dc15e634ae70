"""``enginehouse top``: a running gateway, watched in a terminal."""

from __future__ import annotations

import time
from contextlib import suppress

import click
import msgspec
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from enginehouse.cli.client import GatewayClient, gateway_options
from enginehouse.cli.options import Duration
from enginehouse.cli.output import print_json
from enginehouse.cli.status import StatusAnswer, backend_table, headline, worker_table


class _TopRequest(msgspec.Struct):
    id: str
    path: str
    model: str | None
    phase: str
    progress: str | None
    position: int | None
    replica: str | None
    moves: int
    output_tokens: int | None
    age_ms: float


class _RequestsAnswer(msgspec.Struct):
    """The part of ``GET /api/requests`` that the table shows."""

    requests: list[_TopRequest]


@click.command()
@gateway_options
@click.option("--interval", type=Duration(), default="1s", show_default=True, help="Time between two updates.")
@click.option("--json", "as_json", is_flag=True, help="Print the current state as a JSON object, and exit.")
def top(gateway: GatewayClient, interval: float, as_json: bool) -> None:
    """Watch backends, workers and live requests until Ctrl-C."""
    if as_json:
        print_json(_as_json(gateway))
        return
    with Live(_look(gateway), screen=True, auto_refresh=False) as screen, suppress(KeyboardInterrupt):
        while True:
            screen.refresh()
            time.sleep(interval)
            screen.update(_look(gateway))


def _as_json(gateway: GatewayClient) -> bytes:
    status, requests = msgspec.Raw(gateway.get("/api/status")), gateway.get("/api/requests")
    live = gateway.read(requests, dict[str, msgspec.Raw])["requests"]
    return msgspec.json.encode({"status": status, "requests": live})


def _look(gateway: GatewayClient) -> Group:
    status = gateway.read(gateway.get("/api/status"), StatusAnswer)
    live = gateway.read(gateway.get("/api/requests"), _RequestsAnswer).requests
    tables = (backend_table(status), worker_table(status), _request_table(live))
    return Group(Text(headline(status)), *tables)


def _request_table(live: list[_TopRequest]) -> Table:
    """A row for each live request, the oldest first."""
    table = Table("request", "model", "phase", "replica", "age", "tokens", "moves")
    for each in live:
        more = each.progress or each.position
        phase = each.phase if more is None else f"{each.phase} ({more})"
        table.add_row(
            escape(each.id),
            escape(each.model or each.path),
            phase,
            escape(each.replica or ""),
            f"{each.age_ms / 1000:.1f} s",
            "" if each.output_tokens is None else str(each.output_tokens),
            str(each.moves or ""),
        )
    return table
