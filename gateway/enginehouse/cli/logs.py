"""``enginehouse logs``: what the gateway and its engines print."""

from __future__ import annotations

from contextlib import suppress

import click

from enginehouse.cli.client import GatewayClient, gateway_options


@click.command()
@gateway_options
@click.argument("backend", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is printed from now on, until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="N", help="Begin with the last N lines, not with all.")
def logs(gateway: GatewayClient, backend: str | None, follow: bool, lines: int | None) -> None:
    """Print what the engine of BACKEND printed; without BACKEND, a gateway's own log and what all its engines printed.

    Only of backends that the gateway launches is the output known.
    """
    of_all = ("logs", "stream") if follow else ("logs",)
    path = of_all if backend is None else ("api", "logs", backend)
    query = {"follow": str(follow).lower()} | ({} if lines is None else {"lines": str(lines)})
    with suppress(KeyboardInterrupt):  # Ctrl-C is how it is meant to end
        for piece in gateway.stream(*path, **query):
            click.echo(piece, nl=False)
