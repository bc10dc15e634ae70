"""``enginehouse envoy``."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

import click

from enginehouse.picking import Picker
from enginehouse_envoy.serving import Listeners, run

_LISTENER = re.compile(r"port_value: (1000[01])")
_ENDPOINT = re.compile(r"( +- endpoint: ).*port_value: (\d+).*\n?")
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
@click.option("--socket", metavar="PATH", default="", help="Unix socket for ext_authz too: cheaper than a port.")
@click.option("--grpc-port", type=_PORT, default=9002, show_default=True, help="Port for ext_proc and access logs.")
@click.option("--health-port", type=_PORT, help="Port for only gRPC's health service, always without TLS.")
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
@click.option(
    "--objective",
    "objectives",
    metavar="NAME=PRIORITY",
    multiple=True,
    callback=lambda context, option, given: dict(map(_objective, given)),
    help="Priority in queues of requests with this x-gateway-inference-objective; 0 for others.",
)
def serve(
    config: Path | None,
    host: str,
    http_port: int,
    socket: str,
    grpc_port: int,
    health_port: int | None,
    port: int | None,
    tls: str,
    responses: str,
    fallbacks: int,
    objectives: dict[str, int],
) -> None:
    """Answer Envoy's questions where to send requests, until a signal.

    On SIGHUP, the configuration is read again.
    """
    watches = responses == "watch"
    listeners = Listeners(host, http_port, socket, grpc_port, health_port, port, tls, watches, fallbacks, objectives)
    run(Picker(config), listeners)


def _objective(given: str) -> tuple[str, int]:
    name, _, priority = given.rpartition("=")
    try:
        return name, int(priority)
    except ValueError:
        raise click.BadParameter(
            f"'{given}' is not NAME=PRIORITY with a whole number, such as interactive=10"
        ) from None


@envoy.command(name="config")
@click.option("--listen", type=_PORT, default=10000, show_default=True, help="Envoy's port that uses ext_authz.")
@click.option(
    "--listen-ext-proc", type=_PORT, default=10001, show_default=True, help="Envoy's port that uses ext_proc."
)
@click.option("--http-port", type=_PORT, default=9001, show_default=True, help="As of `enginehouse envoy serve`.")
@click.option("--socket", metavar="PATH", default="", help="In place of --http-port.")
@click.option("--grpc-port", type=_PORT, default=9002, show_default=True, help="As of `enginehouse envoy serve`.")
@click.option(
    "--also",
    metavar="HOST:HTTP:GRPC",
    multiple=True,
    callback=lambda context, option, given: list(map(_other, given)),
    help="The host and the two ports of another picker.",
)
def print_config(
    listen: int, listen_ext_proc: int, http_port: int, socket: str, grpc_port: int, also: list[tuple[str, int, int]]
) -> None:
    """Print a configuration for Envoy that asks this picker."""
    http, grpc = [_at("127.0.0.1", http_port)], [_at("127.0.0.1", grpc_port)]
    if socket:
        http = [f"{{pipe: {{path: {json.dumps(socket)}}}}}"]
    http += [_at(host, port) for host, port, _ in also]
    grpc += [_at(host, port) for host, _, port in also]
    pickers, listeners = {"9001": http, "9002": grpc}, {"10000": listen, "10001": listen_ext_proc}
    text = (files("enginehouse_envoy") / "envoy.yaml").read_text()
    text = _LISTENER.sub(lambda found: f"port_value: {listeners[found[1]]}", text)
    text = _ENDPOINT.sub(lambda line: "".join(f"{line[1]}{{address: {each}}}\n" for each in pickers[line[2]]), text)
    if socket:  # Envoy looks up no path
        text = text.replace("type: STRICT_DNS", "type: STATIC", 1)
    click.echo(text, nl=False)


def _other(given: str) -> tuple[str, int, int]:
    host, *ports = given.rsplit(":", 2)
    try:
        http, grpc = map(int, ports)
    except ValueError:
        raise click.BadParameter(f"'{given}' is not HOST:HTTP:GRPC, such as 10.0.0.2:9001:9002") from None
    return host.strip("[]"), http, grpc


def _at(host: str, port: int) -> str:
    return f"{{socket_address: {{address: {json.dumps(host)}, port_value: {port}}}}}"
