"""``enginehouse ps``: the models that are loaded."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.filesize import decimal
from rich.table import Column, Table

from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import printable

_AT_REST = ("stopped", "unreachable", "unknown")


class _ConditionWord(msgspec.Struct):
    word: str
    why: str | None = None


class _Loaded(msgspec.Struct):
    model: str
    backend: str
    host: str
    condition: _ConditionWord
    memory: int | None = None
    slots: int | None = None
    waiting: int = 0


class _LoadedAnswer(msgspec.Struct):
    """The part of ``GET /api/status`` that is shown."""

    replicas: list[_Loaded]


@click.command()
@gateway_options
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
def ps(gateway: GatewayClient, as_json: bool) -> None:
    """Show the models that a gateway has loaded or is loading."""
    answer = gateway.get("/api/status")
    shown = [each for each in gateway.read(answer, _LoadedAnswer).replicas if each.condition.word not in _AT_REST]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(shown), indent=2))
        return
    table = Table(
        Column("model", overflow="fold"),
        Column("backend", overflow="fold"),
        "host",
        "state",
        "memory",
        "slots",
        "waiting",
    )
    for each in shown:
        table.add_row(
            printable(each.model),
            printable(each.backend),
            printable(each.host),
            printable(f"{each.condition.word}: {each.condition.why}" if each.condition.why else each.condition.word),
            "" if each.memory is None else decimal(each.memory),
            "" if each.slots is None else str(each.slots),
            str(each.waiting),
        )
    Console().print(table if shown else "No model is loaded; the first request for one loads it.")
