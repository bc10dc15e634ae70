"""``enginehouse envoy``."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import click

from enginehouse import Picker
from enginehouse_envoy.serving import Listeners, run

_PORT_VALUE = re.compile(r"port_value: (\d+)")
_PORT = click.IntRange(0, 65535)


@click.group()
def envoy() -> None:
    """Decide where Envoy sends requests."""


@envoy.command()
@click.option(
    "--config",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Configuration; else $ENGINEHOUSE_CONFIG, ./enginehouse.toml, or the user's.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--http-port", type=_PORT, default=9001, show_default=True, help="Port for ext_authz over HTTP/1.1.")
@click.option("--grpc-port", type=_PORT, default=9002, show_default=True, help="Port for ext_proc and access logs.")
@click.option("--health-port", type=_PORT, help="Port for gRPC's health service alone, always without TLS.")
@click.option("--port", type=_PORT, help="Port for what `enginehouse serve` does too: its pages, metrics and relay.")
@click.option("--tls", metavar="self-signed|CERT,KEY", default="", help="Encrypt the first two ports.")
@click.option(
    "--responses",
    type=click.Choice(["skip", "watch"]),
    default="skip",
    show_default=True,
    help="Leave an ext_proc stream after the request, or stay until the answer has ended.",
)
@click.option("--fallbacks", type=click.IntRange(0), default=0, show_default=True, help="Further engines to name.")
def serve(
    config: Path | None,
    host: str,
    http_port: int,
    grpc_port: int,
    health_port: int | None,
    port: int | None,
    tls: str,
    responses: str,
    fallbacks: int,
) -> None:
    """Answer Envoy's questions where to send requests, until a signal.

    On SIGHUP, the configuration is read again.
    """
    watches = responses == "watch"
    run(Picker(config), Listeners(host, http_port, grpc_port, health_port, port, tls, watches, fallbacks))


@envoy.command(name="config")
@click.option("--listen", type=_PORT, default=10000, show_default=True, help="Envoy's port that asks by ext_authz.")
@click.option("--listen-ext-proc", type=_PORT, default=10001, show_default=True, help="The one that asks by ext_proc.")
@click.option("--http-port", type=_PORT, default=9001, show_default=True, help="As of `enginehouse envoy serve`.")
@click.option("--grpc-port", type=_PORT, default=9002, show_default=True, help="As of `enginehouse envoy serve`.")
def print_config(listen: int, listen_ext_proc: int, http_port: int, grpc_port: int) -> None:
    """Print a configuration for Envoy that asks this picker."""
    ports = {"10000": listen, "10001": listen_ext_proc, "9001": http_port, "9002": grpc_port}
    text = (files("enginehouse_envoy") / "envoy.yaml").read_text()
    click.echo(_PORT_VALUE.sub(lambda found: f"port_value: {ports.get(found[1], found[1])}", text), nl=False)
