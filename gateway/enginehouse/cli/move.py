"""``enginehouse move``: continue a live stream at another backend."""

from __future__ import annotations

import click
import msgspec

from enginehouse.cli.client import GatewayClient, gateway_options


class _Moved(msgspec.Struct, rename={"source": "from"}):
    source: str
    gap_ms: float


@click.command()
@gateway_options
@click.argument("id")
@click.option("--to", "backend", required=True, help="The backend that shall go on with it.")
def move(gateway: GatewayClient, id: str, backend: str) -> None:
    """Continue the live stream with the request id ID at another backend; its client notices only a short gap."""
    moved = gateway.read(gateway.post("api", "requests", id, "move", body={"to": backend}), _Moved)
    click.echo(f"{id} moved from {moved.source} to {backend}; its client waited {moved.gap_ms:g} ms")
