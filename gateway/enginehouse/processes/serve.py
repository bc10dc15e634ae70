"""Runs the gateway, for ``enginehouse serve`` and for commands of plugins."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from enginehouse.aio.serving import SERVING
from enginehouse.app import Gateway
from enginehouse.app.gateway import rehearse_start
from enginehouse.app.reload import ChangeWatch, ConfigSource
from enginehouse.config.load_config import LoadedConfig, load_config_or_embedded
from enginehouse.config.schema import Config
from enginehouse.config.secret_variables import secret_values
from enginehouse.config.server import worker_count
from enginehouse.engines.state_file import state_folder
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse.processes.gateway_server import GatewayServer
from enginehouse.processes.listen import Listeners
from enginehouse.processes.take_over.new_side import Predecessor
from enginehouse.telemetry.logs import configure_logs

if TYPE_CHECKING:
    from enginehouse.processes.workers.forks import Forks

_log = logging.getLogger(__name__)


def serve_file(file: Path | None, *, host: str | None, port: int | None, watch: bool, take_over: bool) -> None:
    """Serve the configuration of ``file``, or the one that is found, with these options of the command line."""

    def read() -> LoadedConfig:
        loaded = load_config_or_embedded(file, os.environ)
        return loaded._replace(config=adjusted(loaded.config, host, port, watch))

    serve(read, take_over=take_over)


def serve(
    read: Callable[[], LoadedConfig],
    watch: ChangeWatch | None = None,
    *,
    take_over: bool = False,
    greeting: Callable[[str], str] | None = None,
) -> None:
    """Serve until a signal comes.

    ``read`` returns the configuration, now and at each reload.
    ``watch`` notices when to reload.
    ``take_over``: take over from the gateway of the same name, if one runs.
    ``greeting`` makes the text that is printed first, from the gateway's URL.
    """
    with suppress(ValueError):  # of a thread: then this is no process of the gateway's own
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)  # it would end a gateway that has not begun
    loaded = read()
    settings = loaded.config
    log = configure_logs(settings.telemetry, secrets=secret_values(settings))
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    with loaded.naming_file():
        source = ConfigSource(read, loaded.file, watch)
        registry = load_plugins(settings.plugins).registry
        predecessor = Predecessor.find(state_folder(settings.server.name)) if take_over else None
        listeners = _listeners(settings, predecessor)
        with closing(listeners):
            forks = _fork_workers(settings, registry, listeners)
            if predecessor is not None:
                rehearse_start(settings, registry)  # while the other one serves
            gateway = Gateway(settings, registry, log, source, shared=forks.accounts if forks is not None else None)
            greeting = greeting or (_greeting if loaded.file else _greeting_of_embedded)
            _run(GatewayServer(gateway, listeners, predecessor, forks, greeting))


def _fork_workers(settings: Config, registry: Registry, listeners: Listeners) -> Forks | None:
    """What workers need, forked before any thread runs; ``None`` if this process serves alone."""
    count = worker_count(settings.server).number
    if count == 1:
        return None
    from enginehouse.processes.workers.forks import Forks

    return Forks(settings, registry, count, listeners)


def _listeners(settings: Config, predecessor: Predecessor | None) -> Listeners:
    """The sockets of ``predecessor`` if they fit the configuration, else new ones. Raises ``EnginehouseError``."""
    server = settings.server
    if predecessor is not None:
        asyncio.run(predecessor.connect())
        passed = Listeners(predecessor.listening)
        if passed.fits(server.host, server.port):
            return passed
        passed.close()
    return Listeners.open(server.host, server.port)


def _run(server: GatewayServer) -> None:
    """Serve until a signal. Raises ``ConfigError``, ``PluginError`` or ``TakeOverFailed`` if it cannot start."""
    SERVING.is_stopping, SERVING.accepts = lambda: server.should_exit, server.accepts
    with suppress(KeyboardInterrupt):  # Ctrl-C stops the gateway
        server.run([])
    if server.problem is not None:
        raise server.problem


def adjusted(config: Config, host: str | None, port: int | None, watch: bool) -> Config:
    """``config`` with the options of the command line."""
    given = {"host": host, "port": port, "watch": watch or None}
    server = msgspec.structs.replace(config.server, **{key: value for key, value in given.items() if value is not None})
    return msgspec.structs.replace(config, server=server)


def _greeting(url: str) -> str:
    return f"Enginehouse is listening on {url}"


def _greeting_of_embedded(url: str) -> str:
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
