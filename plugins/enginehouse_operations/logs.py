"""``enginehouse logs``: the logs of the gateway and its engines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

import click
import msgspec

from enginehouse_kit.gateway_client import GatewayClient, gateway_options
from enginehouse_kit.output import coloured_text
from enginehouse_operations import completion


@click.command()
@gateway_options
@click.argument("backend", required=False, shell_complete=completion.backends)
@click.option("-f", "--follow", is_flag=True, help="Continue with new lines until Ctrl-C.")
@click.option("-n", "--lines", type=click.IntRange(0), metavar="N", help="Begin with the last N lines instead of all.")
@click.option("--json", "as_json", is_flag=True, help="Print each line as a JSON object.")
def logs(gateway: GatewayClient, backend: str | None, follow: bool, lines: int | None, as_json: bool) -> None:
    """Print the log of BACKEND's engine, or all logs.

    Without BACKEND, the gateway's own log and those of all its engines.

    Only backends that the gateway launches have logs here.
    """
    of_all = ("logs", "stream") if follow else ("logs",)
    path = of_all if backend is None else ("api", "logs", backend)
    query = {"follow": str(follow).lower()} | ({} if lines is None else {"lines": str(lines)})
    with suppress(KeyboardInterrupt):  # Ctrl-C ends a followed log
        pieces = gateway.stream(*path, **query)
        for text in _objects(pieces, backend) if as_json else coloured_text(pieces):
            click.echo(text, nl=False)


def _objects(pieces: Iterable[bytes], backend: str | None) -> Iterator[str]:
    """Each line of ``pieces`` as a JSON object."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (_object(line, backend) for line in lines)
    if rest:
        yield _object(rest, backend)


def _object(line: bytes, backend: str | None) -> str:
    return msgspec.json.encode({"backend": backend, "line": line.decode(errors="replace")}).decode() + "\n"
