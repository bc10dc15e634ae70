"""``enginehouse models``: the models that clients can name."""

from __future__ import annotations

import click
import msgspec
from rich.console import Console
from rich.table import Column, Table

from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json, printable
from enginehouse_operations.options import answer_as_json


class _ListedModel(msgspec.Struct):
    id: str
    root: str
    max_model_len: int | None = None
    quantization: str = ""


class _ModelsAnswer(msgspec.Struct):
    """The part of ``GET /v1/models`` that the table shows."""

    data: list[_ListedModel]


@click.command()
@gateway_options
@answer_as_json
def models(gateway: GatewayClient, as_json: bool) -> None:
    """List the models and aliases that clients can name."""
    answer = gateway.get("/v1/models")
    listed = gateway.read(answer, _ModelsAnswer)
    if as_json:
        print_json(answer)
    else:
        Console().print(_table(listed.data))


def _table(listed: list[_ListedModel]) -> Table:
    quantised = any(model.quantization for model in listed)
    names = [Column(heading, overflow="fold") for heading in ("model", "alias of")]
    table = Table(*names, "context length", *(["quantization"] if quantised else []))
    for model in listed:
        alias_of = model.root if model.root != model.id else ""
        length = "" if model.max_model_len is None else str(model.max_model_len)
        more = [printable(model.quantization)] if quantised else []
        table.add_row(printable(model.id), printable(alias_of), length, *more)
    return table
