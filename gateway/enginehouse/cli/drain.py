"""``enginehouse drain`` and ``undrain``: take a backend out of service, and back."""

from __future__ import annotations

import math
import time

import click
import msgspec

from enginehouse.cli import completion
from enginehouse.cli.client import GatewayClient, gateway_options
from enginehouse.cli.options import Duration
from enginehouse.domain.errors import GatewayError

_ASK_EVERY_S = 0.2
_STOP_TIMEOUT_S = 600.0


class _Drained(msgspec.Struct):
    live: int


@click.command()
@gateway_options
@click.argument("backend", shell_complete=completion.backends)
@click.option("--wait", type=Duration(), help="Wait until BACKEND has no live request, at most so long, such as 30s.")
@click.option("--stop", is_flag=True, help="Wait, without a limit by default, then stop the engine of BACKEND.")
def drain(gateway: GatewayClient, backend: str, wait: float | None, stop: bool) -> None:
    """Send no new requests to BACKEND. Its live streams move to other backends of their model; the rest may finish.

    --stop needs a backend that the gateway launched. Its engine starts again only after undrain.
    """
    end = math.inf if wait is None else time.monotonic() + wait
    answer = gateway.post("api", "backends", backend, "drain")
    click.echo(f"{backend} gets no new requests")
    if wait is None and not stop:
        return
    shown = 0
    while left := gateway.read(answer, _Drained).live:
        if time.monotonic() > end:
            raise GatewayError(f"{backend} still has {left} live requests after {wait:g} s; it stays drained")
        if left != shown:
            shown = left
            click.echo(f"{backend} has {left} live {'request' if left == 1 else 'requests'}")
        time.sleep(_ASK_EVERY_S)
        answer = gateway.post("api", "backends", backend, "drain")
    click.echo(f"{backend} has no live request")
    if stop:
        gateway.post("api", "backends", backend, "stop", timeout=_STOP_TIMEOUT_S)
        click.echo(f"{backend} has stopped")


@click.command()
@gateway_options
@click.argument("backend", shell_complete=completion.backends)
def undrain(gateway: GatewayClient, backend: str) -> None:
    """Send requests to BACKEND again."""
    gateway.post("api", "backends", backend, "undrain")
    click.echo(f"{backend} gets requests again")
