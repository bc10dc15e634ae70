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


class _Replica(msgspec.Struct):
    backend: str
    model: str
    state: ReplicaState


class _Status(msgspec.Struct):
    """What the table shows of ``GET /api/status``."""

    version: str
    strategy: str
    uptime_s: float
    requests: int
    backends: list[BackendStatus]
    replicas: list[_Replica]


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
        if backend.health is not Health.HEALTHY and backend.last_error:
            click.echo(f"{backend.name} is {backend.health.value}: {backend.last_error}")


def _table(told: _Status) -> Table:
    resting = {
        (each.backend, each.model): f"{each.model} ({each.state.value})"
        for each in told.replicas
        if each.state is not ReplicaState.READY
    }
    table = Table("backend", "driver", "health", "pending", "latency", "models")
    for each in told.backends:
        health = each.health.value + (", draining" if each.draining else "")
        models = escape("\n".join(resting.get((each.name, model), model) for model in each.models))
        table.add_row(
            escape(each.name), escape(each.driver), health, str(each.pending), f"{each.avg_latency_ms:.0f} ms", models
        )
    return table
