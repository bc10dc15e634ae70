"""``enginehouse move``: continue a live stream at another backend."""

from __future__ import annotations

import click
import msgspec

from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json
from enginehouse_operations import completion
from enginehouse_operations.options import answer_as_json


class _Moved(msgspec.Struct, rename={"source": "from"}):
    source: str
    gap_ms: float


@click.command()
@gateway_options
@click.argument("id", shell_complete=completion.requests)
@click.option("--to", "backend", required=True, help="The backend to move it to.", shell_complete=completion.backends)
@answer_as_json
def move(gateway: GatewayClient, id: str, backend: str, as_json: bool) -> None:
    """Continue a live stream at another backend.

    ID is the request's id. Its client notices only a short gap."""
    answer = gateway.post("api", "requests", id, "move", body={"to": backend})
    moved = gateway.read(answer, _Moved)
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{id} moved from {moved.source} to {backend}; its client waited {moved.gap_ms:g} ms")
