"""``enginehouse serve``: runs the gateway."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, cast

import click
import msgspec
import uvicorn

from enginehouse.aio.timeouts import run_unless, wait_within
from enginehouse.api.doors.fast import WebSocketProtocol, fast_door
from enginehouse.app import Gateway
from enginehouse.app.reload import ConfigSource
from enginehouse.app.watch import FolderWatch
from enginehouse.cli.allocator import return_freed_memory
from enginehouse.cli.listen import Listeners
from enginehouse.cli.options import config_option
from enginehouse.cli.service_manager import ServiceManager
from enginehouse.config.embedded import load_config_or_embedded
from enginehouse.config.load_config import LoadedConfig
from enginehouse.config.schema import Config
from enginehouse.config.secret_variables import secret_values
from enginehouse.config.worker_count import worker_count
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse.telemetry.logs import configure_logs
from enginehouse.telemetry.loop_watch import LoopWatchdog

if TYPE_CHECKING:
    from enginehouse.app.workers.worker_pool import WorkerPool
    from enginehouse.cli.worker_server import Forks

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 0.1
_PONG_TIMEOUT_S = 120.0
"""Not shorter than an engine may stall: a client's pong waits behind messages that the engine has not yet taken."""


@click.command()
@config_option
@click.option("--host", help="Address to listen on, instead of server.host.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on, instead of server.port; 0 picks one.")
@click.option("--watch", is_flag=True, help="Reload the configuration when its file changes, as server.watch does.")
def serve(config: Path | None, host: str | None, port: int | None, watch: bool) -> None:
    """Run the gateway; without any configuration, in front of two simulated models.

    On SIGHUP, the gateway reloads its configuration.
    """

    def read() -> LoadedConfig:
        loaded = load_config_or_embedded(config, os.environ)
        return loaded._replace(config=adjusted(loaded.config, host, port, watch))

    serve_loaded(read)


def serve_loaded(read: Callable[[], LoadedConfig], watch: FolderWatch | None = None) -> None:
    """Serve the configuration of ``read``, called now and at each reload, until a signal. ``watch`` notices changes."""
    loaded = read()
    settings = loaded.config
    log = configure_logs(settings.telemetry, secrets=secret_values(settings))
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    try:
        source = ConfigSource(read, loaded.file, watch)
        registry = load_plugins(settings.plugins).registry
        forks = _fork_workers(settings, registry)
        gateway = Gateway(settings, registry, log, source, limits=forks.limits if forks is not None else None)
        server = _GatewayServer(gateway, ServiceManager(), embedded=loaded.file is None and watch is None)
        server.workers = forks.pool(gateway) if forks is not None else None
        _run(
            server, forks.listeners if forks is not None else Listeners.open(settings.server.host, settings.server.port)
        )
    except ConfigError as error:
        raise error.located(str(loaded.file) if loaded.file else "") from None


def _fork_workers(settings: Config, registry: Registry) -> Forks | None:
    """What workers need, forked before any thread runs; ``None`` if this process serves alone."""
    count = worker_count(settings.server).number
    if count == 1:
        return None
    from enginehouse.cli.worker_server import Forks

    return Forks(settings, registry, count)


def _run(server: _GatewayServer, listeners: Listeners) -> None:
    """Serve until a signal. Raises ``ConfigError`` or ``PluginError`` if the gateway cannot start."""
    server.listeners = listeners
    with suppress(KeyboardInterrupt):  # Ctrl-C stops the gateway
        server.run(listeners.copies() if server.workers is None else [])
    listeners.close()
    if server.problem is not None:
        raise server.problem
    if not server.started:
        sys.exit(1)


def adjusted(config: Config, host: str | None, port: int | None, watch: bool) -> Config:
    """``config`` with the options of the command line."""
    server = msgspec.structs.replace(config.server, watch=watch or config.server.watch)
    if host is not None:
        server = msgspec.structs.replace(server, host=host)
    if port is not None:
        server = msgspec.structs.replace(server, port=port)
    return msgspec.structs.replace(config, server=server)


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn reports each answer that the relay breaks off as an error of the application. The access log has it."""
    return not record.getMessage().startswith("ASGI callable returned without completing response")


class _GatewayServer(uvicorn.Server):
    """uvicorn with the fast door. Prints its address, and keeps ``service`` informed.

    ``listeners`` is set before it runs. uvicorn gets copies of their sockets.
    """

    listeners: Listeners

    def __init__(self, gateway: Gateway, service: ServiceManager, *, embedded: bool) -> None:
        settings = gateway.config.server
        door = fast_door(gateway.admission, cors=bool(settings.cors))
        super().__init__(
            uvicorn.Config(
                gateway.application,
                http=cast("type[asyncio.Protocol]", door),  # uvicorn only calls it
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=75,
                ws=WebSocketProtocol,
                ws_max_size=settings.max_body,
                ws_ping_timeout=_PONG_TIMEOUT_S,
            )
        )
        logging.getLogger("uvicorn.error").addFilter(_is_news)
        self._gateway = gateway
        self._service = service
        self._embedded = embedded
        self.problem: EnginehouseError | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.workers: WorkerPool | None = None
        self._signalled = asyncio.Event()
        self._watchdog = LoopWatchdog(
            gateway.loop_monitor,
            {
                entry.module.partition(".")[0]: f"'{entry.entry_point}' ({entry.distribution} {entry.version})"
                for entry in gateway.registry.all()
            },
            stopping=lambda: self.should_exit,
            drain_timeout=lambda: gateway.config.server.drain_timeout,
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            self._gateway.build_hosts()
        except EnginehouseError as error:
            self.problem = error
            self.should_exit = True
            return
        await super().startup(sockets)
        if self.started:
            _tune_garbage_collector()
            return_freed_memory()
            self._gateway.loop_monitor.start()
            self._watchdog.start()
            self._loop.add_signal_handler(signal.SIGHUP, self._reload)
            if self.workers is not None:
                await run_unless(asyncio.ensure_future(self._signalled.wait()), self.workers.start())
            await self._gateway.settled()  # operators' pages answer meanwhile
            click.echo(_greeting(self.listeners.url, self._embedded))
            self._service.ready(self.listeners.url)

    def _reload(self) -> None:
        self._service.reloading()
        reload = self._gateway.reloader.start_reload("SIGHUP")
        reload.add_done_callback(lambda _: self._service.ready(self.listeners.url))

    async def main_loop(self) -> None:
        """Wait for a signal, where uvicorn would look for one ten times a second, and renew the ``Date`` header."""
        while not await self.on_tick(0):  # each tick of this number renews it
            await wait_within(1.0, self._signalled)
            self._signalled.clear()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take requests for ``server.drain_delay``, then wait for live ones until ``server.drain_timeout`` ends them.

        uvicorn would cancel what the application answers, and that without an answer, so it waits a little longer.
        """
        relay, limit = self._gateway.relay, self._gateway.config.server.drain_timeout
        self._service.stopping()
        self._gateway.health.leaving = True
        await self._wait_out(self._gateway.config.server.drain_delay)
        self._gateway.refuse_new()
        await relay.web_sockets_ended()  # else uvicorn closes them with 1012 (service restart)
        ending = asyncio.get_running_loop().call_later(limit, self._gateway.end_live)
        self.config.timeout_graceful_shutdown = math.ceil(limit) + 1
        self.listeners.close()
        if self.workers is not None:
            await self.workers.leave(limit)
            self.workers.close()
        try:
            await super().shutdown(sockets)
        finally:
            self._service.close()
            self._watchdog.end()
            self._gateway.loop_monitor.stop()
            ending.cancel()

    async def _wait_out(self, seconds: float) -> None:
        """Wait; a second signal ends it."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self.force_exit and (left := end - loop.time()) > 0:  # noqa: ASYNC110 - uvicorn sets a flag
            await asyncio.sleep(min(left, _LOOK_EVERY_S))


def _tune_garbage_collector() -> None:
    """Exempt the objects of the start from collection, and collect less often: requests leave no reference cycles.

    The few cycles that the start has left are exempted too: to collect them would take a tenth of the start.
    """
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
  {url}/dashboard

To put it in front of your own engines, write an enginehouse.toml (see docs/how-to/configure.md). Stop with Ctrl-C.
"""
