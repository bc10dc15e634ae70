"""``enginehouse logs``: the logs of the gateway and its engines."""

from __future__ import annotations

from contextlib import suppress

import click

from enginehouse.cli import completion
from enginehouse.cli.client import GatewayClient, gateway_options


@click.command()
@gateway_options
@click.argument("backend", required=False, shell_complete=completion.backends)
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="N", help="Begin with the last N lines instead of all.")
def logs(gateway: GatewayClient, backend: str | None, follow: bool, lines: int | None) -> None:
    """Print the log of BACKEND's engine; without BACKEND, the gateway's own log and those of all its engines.

    Only backends that the gateway launches have logs here.
    """
    of_all = ("logs", "stream") if follow else ("logs",)
    path = of_all if backend is None else ("api", "logs", backend)
    query = {"follow": str(follow).lower()} | ({} if lines is None else {"lines": str(lines)})
    with suppress(KeyboardInterrupt):  # Ctrl-C ends a followed log
        for piece in gateway.stream(*path, **query):
            click.echo(piece, nl=False)
