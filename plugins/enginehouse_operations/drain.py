"""``enginehouse drain``, ``undrain`` and ``move``: take a backend out of service, and back; move a live stream."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import click
import msgspec

from enginehouse import GatewayError
from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import print_json
from enginehouse_operations import completion
from enginehouse_operations.options import Duration, answer_as_json

_ASK_EVERY_S = 0.2
_STOP_TIMEOUT_S = 600.0


class _Drained(msgspec.Struct):
    live: int


@click.command()
@gateway_options
@click.argument("backend", shell_complete=completion.backends)
@click.option(
    "--wait", type=Duration(), help="Wait until BACKEND has no live request, for at most this time, such as 30s."
)
@click.option("--stop", is_flag=True, help="Wait, without a limit by default, then stop the engine of BACKEND.")
@answer_as_json
def drain(gateway: GatewayClient, backend: str, wait: float | None, stop: bool, as_json: bool) -> None:
    """Send no new requests to BACKEND. Its live streams move to other backends of their model; the rest may finish.

    --stop needs a backend that the gateway launched. Its engine starts again only after undrain.
    """
    say = _say_nothing if as_json else click.echo
    answer = gateway.post("api", "backends", backend, "drain")
    say(f"{backend} gets no new requests")
    if wait is not None or stop:
        answer = _wait(gateway, backend, answer, wait, say)
    if stop:
        answer = gateway.post("api", "backends", backend, "stop", timeout=_STOP_TIMEOUT_S)
        say(f"{backend} has stopped")
    if as_json:
        print_json(answer)


def _wait(gateway: GatewayClient, backend: str, answer: bytes, wait: float | None, say: Callable[[str], None]) -> bytes:
    """Ask until ``backend`` has no live request; the last answer."""
    end = math.inf if wait is None else time.monotonic() + wait
    shown = 0
    while left := gateway.read(answer, _Drained).live:
        if time.monotonic() > end:
            raise GatewayError(f"{backend} still has {left} live requests after {wait:g} s; it stays drained")
        if left != shown:
            shown = left
            say(f"{backend} has {left} live {'request' if left == 1 else 'requests'}")
        time.sleep(_ASK_EVERY_S)
        answer = gateway.post("api", "backends", backend, "drain")
    say(f"{backend} has no live request")
    return answer


def _say_nothing(_: str) -> None:
    """Print nothing: the command prints only the last answer."""


@click.command()
@gateway_options
@click.argument("backend", shell_complete=completion.backends)
@answer_as_json
def undrain(gateway: GatewayClient, backend: str, as_json: bool) -> None:
    """Send requests to BACKEND again."""
    answer = gateway.post("api", "backends", backend, "undrain")
    if as_json:
        print_json(answer)
    else:
        click.echo(f"{backend} gets requests again")


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
