"""``enginehouse status``: how the gateway and its backends are."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from enginehouse.cli.client import GatewayClient, gateway_options
from enginehouse.cli.output import print_json
from enginehouse.domain.replica import Health, ReplicaState
from enginehouse.fleet.backend import BackendStatus

_IN_TROUBLE = (Health.UNKNOWN, Health.UNHEALTHY, ReplicaState.FAILED)


class _Status(msgspec.Struct):
    """What the table shows of ``GET /api/status``."""

    version: str
    strategy: str
    uptime_s: float
    requests: int
    backends: list[BackendStatus]


@click.command()
@gateway_options
@click.option("--json", "as_json", is_flag=True, help="Print what the gateway answers.")
def status(gateway: GatewayClient, as_json: bool) -> None:
    """Show a running gateway and each of its backends."""
    answer = gateway.get("/api/status")
    told = gateway.read(answer, _Status)
    if as_json:
        print_json(answer)
        return
    click.echo(
        f"Enginehouse {told.version}, up for {told.uptime_s:.0f} s, strategy {told.strategy}, "
        f"live requests: {told.requests}"
    )
    Console().print(_table(told))
    for backend in told.backends:
        if (how := _how(backend)) in _IN_TROUBLE and backend.last_error:
            click.echo(f"{backend.name} is {how.value}: {backend.last_error}")


def _table(told: _Status) -> Table:
    table = Table("backend", "driver", "health", "pending", "latency", "models")
    for each in told.backends:
        health = _how(each).value + (", draining" if each.draining else "")
        models = escape("\n".join(each.models))
        table.add_row(
            escape(each.name), escape(each.driver), health, str(each.pending), f"{each.avg_latency_ms:.0f} ms", models
        )
    return table


def _how(backend: BackendStatus) -> Health | ReplicaState:
    """The health of an engine that can take requests, else its state."""
    return backend.health if backend.state is ReplicaState.READY else backend.state
