"""``enginehouse serve``: the gateway."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import click
import msgspec
import uvicorn

from enginehouse.api.fast_door import WebSocketProtocol, fast_door
from enginehouse.app import Gateway
from enginehouse.app.reload import Source
from enginehouse.cli.listen import listen, url_of
from enginehouse.cli.options import config_option
from enginehouse.config.embedded import load_config_or_embedded
from enginehouse.config.load import Loaded
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ConfigError
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.telemetry.logs import configure_logs

_log = logging.getLogger(__name__)

_PONG_TIMEOUT_S = 120.0
"""A client's pong waits behind what the engine has yet to take, so this is no shorter than an engine may stall."""


@click.command()
@config_option
@click.option("--host", help="Address to listen on, instead of server.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on, instead of server.port; 0 picks one.")
@click.option("--watch", is_flag=True, help="Load the configuration again when its file was changed: server.watch.")
def serve(config: Path | None, host: str | None, port: int | None, watch: bool) -> None:
    """Run the gateway; without any configuration, in front of two simulated models.

    SIGHUP has it load its configuration again.
    """

    def read() -> Loaded:
        loaded = load_config_or_embedded(config, os.environ)
        return loaded._replace(config=_adjusted(loaded.config, host, port, watch))

    loaded = read()
    settings = loaded.config
    log = configure_logs(settings.telemetry)
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    gateway = Gateway(settings, load_plugins(settings.plugins).registry, log, Source(read, loaded.file))
    server = _Server(gateway, embedded=loaded.file is None)
    with suppress(KeyboardInterrupt):  # Ctrl-C is how it is meant to end
        server.run(listen(settings.server.host, settings.server.port))


def _adjusted(config: Config, host: str | None, port: int | None, watch: bool) -> Config:
    server = msgspec.structs.replace(config.server, watch=watch or config.server.watch)
    if host is not None:
        server = msgspec.structs.replace(server, host=host)
    if port is not None:
        server = msgspec.structs.replace(server, port=port)
    if server.workers > 1:
        raise ConfigError("more than one serving process is not supported", key="server.workers", remedy="set it to 1")
    return msgspec.structs.replace(config, server=server)


class _Server(uvicorn.Server):
    """Uvicorn with the fast door in it, that says where it listens and what to try."""

    def __init__(self, gateway: Gateway, *, embedded: bool) -> None:
        settings = gateway.config.server
        super().__init__(
            uvicorn.Config(
                gateway.application,
                http=fast_door(gateway.entrance, cors=bool(settings.cors)),
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                ws=WebSocketProtocol,
                ws_max_size=settings.max_body,
                ws_ping_timeout=_PONG_TIMEOUT_S,
            )
        )
        self._gateway = gateway
        self._embedded = embedded

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then tell."""
        await super().startup(sockets)
        if self.started:
            _settle()
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._gateway.reloads.ask, "SIGHUP")
            host, port = self.servers[0].sockets[0].getsockname()[:2]
            click.echo(_greeting(url_of(host, port), self._embedded))

    async def on_tick(self, counter: int) -> bool:
        """Let new WebSockets send as much as the configuration says now."""
        self.config.ws_max_size = self._gateway.config.server.max_body
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let live requests end."""
        self._gateway.refuse_new()
        await self._gateway.relay.web_sockets_ended()  # else the server would tell them that it is about to restart
        self.config.timeout_graceful_shutdown = round(self._gateway.config.server.drain_timeout)
        await super().shutdown(sockets)


def _settle() -> None:
    """Tell the garbage collector that what is here stays, and to look less often: requests leave no cycles behind."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _greeting(url: str, embedded: bool) -> str:
    if not embedded:
        return f"Enginehouse is listening on {url}"
    return f"""\
Enginehouse is listening on {url}, in front of two simulated models: sim-small and sim-large.

Try it:
  curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "sim-small", "stream": true, "messages": [{{"role": "user", "content": "Hello"}}]}}'

With the OpenAI SDK:
  from openai import OpenAI
  client = OpenAI(base_url="{url}/v1", api_key="none")
  answer = client.chat.completions.create(model="gpt-4", messages=[{{"role": "user", "content": "Hello"}}])
  print(answer.choices[0].message.content)

Look at it:
  enginehouse status --url {url}

To put it in front of your own engines, write an enginehouse.toml (see docs/how-to/configure.md). Stop with Ctrl-C.
"""
