"""The gateway on a virtual clock, in front of engines that its caller simulates.

It is the gateway of ``serve`` with other ends, so it imports modules of the gateway that plugins do not: pyproject.toml
names them.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from enginehouse import ConfigError, Driver, InferenceRequest, Launcher
from enginehouse.app.gateway import Gateway
from enginehouse.config.auth import UsageSettings
from enginehouse.config.load_config import LoadedConfig, find_document, read_document
from enginehouse.config.schema import Config
from enginehouse.domain.request_facts import MOST
from enginehouse.drivers import DriverSupport, LaunchSpec, support_of
from enginehouse.engines.launch_line import launch_spec
from enginehouse.engines.managed_engines import hosts_of
from enginehouse.engines.state_file import StateFile
from enginehouse.errors import Unauthorized
from enginehouse.launchers import EngineOutput, EngineProcess, Exit, LaunchLine
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse.relay.upstream.outside import Connector, Origin, Outside
from enginehouse.runtime import Clock
from enginehouse_kit.rescheduling import Migrator


class VirtualBackend(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one engine to simulate.

    ``models`` are those that the configuration names; empty if the engine decides. ``spec`` has the settings with which
    the gateway launches it; ``None`` for an engine that runs already.
    """

    name: str
    driver: str
    models: Sequence[str] = ()
    spec: LaunchSpec | None = None


class VirtualEngines(ABC):
    """Simulates the engines of a ``VirtualGateway``."""

    @abstractmethod
    def connect(self, backend: str, connection: asyncio.Protocol) -> None:
        """Call ``connection.connection_made`` with a transport to the engine of ``backend``, which speaks HTTP.

        Raises ``OSError`` if the engine accepts no connection.
        """

    @abstractmethod
    def driver(self, *, bootstraps: bool) -> Driver:
        """Return the driver that asks the engines of one kind; ``bootstraps``: with ``SupportsBootstrap``.

        The configured driver still decides how engines are launched, and whether they hand prompts over.
        """

    @abstractmethod
    async def launch(self, process: VirtualProcess) -> None:
        """Start the engine of ``process``; return when it runs. Raises ``LoadFailed``."""

    async def stop(self, process: VirtualProcess) -> None:
        """Stop the engine of ``process``; return when its memory is free."""

    def migrator(self, type: str, configured: Migrator) -> Migrator:
        """Return a simulated migrator in place of one that would ask real engines."""
        return configured


class VirtualProcess(EngineProcess):
    """A launched engine. ``backend``: its name."""

    def __init__(self, backend: str, address: str, engines: VirtualEngines) -> None:
        self.backend = backend
        self.address = address
        self.handle: Mapping[str, Any] = {}
        self._engines = engines
        self._exited: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def exit(self, status: int) -> None:
        if not self._exited.done():
            self._exited.set_result(status)

    async def exited(self) -> Exit:
        return Exit(status=await asyncio.shield(self._exited))

    async def memory(self) -> int | None:
        return None

    async def stop(self, timeout: float) -> None:
        if not self._exited.done():
            await self._engines.stop(self)
            self.exit(0)


class VirtualLauncher(Launcher):
    """Launches simulated engines. ``addresses``: by backend."""

    def __init__(self, engines: VirtualEngines, addresses: Mapping[str, str]) -> None:
        self._engines = engines
        self._addresses = addresses

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        process = VirtualProcess(name, self._addresses[name], self._engines)
        await self._engines.launch(process)
        return process

    async def adopt(
        self, name: str, line: LaunchLine, handle: Mapping[str, Any], output: EngineOutput
    ) -> EngineProcess | None:
        return None


class VirtualClient(ResponseWriter):
    """Learns what happens to a request, as its client would."""

    _status = 0
    _is_stream = _has_begun = False

    @abstractmethod
    def answered(self) -> None:
        """The first piece of the answer has come."""

    @abstractmethod
    def ended(self, status: int, code: str) -> None:
        """The answer has ended. ``code``: of the error that ends it; empty if it is whole."""

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        self._status = status
        self._is_stream = length is None

    def write(self, chunk: bytes) -> None:
        if not self._has_begun and not chunk.startswith(b":"):  # a comment is no part of the answer, but a heartbeat
            self._has_begun = True
            self.answered()

    def finish(self, chunk: bytes) -> None:
        if self._status >= 400:
            self.ended(self._status, _error_code(chunk))
            return
        self.write(chunk)
        whole = not self._is_stream or not chunk or b"[DONE]" in chunk
        self.ended(self._status, "" if whole else _error_code(chunk.partition(b"data:")[2]))

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        self.ended(self._status, "upstream_error")


class _ErrorFields(msgspec.Struct):
    code: str | None = None


class _ErrorAnswer(msgspec.Struct):
    error: _ErrorFields = msgspec.field(default_factory=_ErrorFields)


def _error_code(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_ErrorAnswer).error.code or "upstream_error"
    except msgspec.MsgspecError:
        return "upstream_error"


_LAUNCHER = "virtual"
_START_S = 1.0
"""How long the gateway takes to start: in records of requests, the time 0 stands for a step that was not reached."""


class VirtualGateway:
    """The gateway of ``serve``, with a virtual clock, network and launcher, and without a listening socket.

    ``engines`` simulates the engines; ``seed`` decides chance. Make and use the gateway inside a running
    ``VirtualLoop``: hours pass at once.
    Raises ``ConfigError`` or ``PluginError``, as ``serve`` does.
    """

    def __init__(self, config: Config, registry: Registry, engines: VirtualEngines, seed: int = 0) -> None:
        names = [*config.backends, *(name for name, _ in _managed(config))]
        addresses = {name: f"http://engine-{number}" for number, name in enumerate(names)}
        registry.add([_registered(VirtualLauncher(engines, addresses))])
        outside = _VirtualOutside(engines, {address: name for name, address in addresses.items()}, seed)
        self._registry = registry
        self._gateway = gateway = Gateway(_reached(config, addresses), registry, outside=outside)
        self._context = gateway.relay.context
        self._folder = TemporaryDirectory(prefix="enginehouse-virtual-")
        gateway.build_hosts(StateFile(Path(self._folder.name)))

    @classmethod
    def of(cls, loaded: LoadedConfig, engines: VirtualEngines, seed: int = 0) -> VirtualGateway:
        """The gateway of a configuration, with its plugins."""
        with loaded.naming_file():
            return cls(loaded.config, load_plugins(loaded.config.plugins).registry, engines, seed)

    @property
    def config(self) -> Config:
        return self._gateway.config

    @property
    def backends(self) -> Sequence[VirtualBackend]:
        """Every engine: the remote ones, then those that are launched."""
        config, drivers = self.config, self._gateway.current.context.drivers
        remote = [
            VirtualBackend(name=name, driver=each.driver, models=tuple(each.models or ()))
            for name, each in config.backends.items()
        ]
        launched = []
        for name, model in _managed(config):
            settings = config.models[model]
            spec = launch_spec(model, settings, drivers[settings.driver].launch)
            launched.append(VirtualBackend(name=name, driver=settings.driver, models=(model,), spec=spec))
        return [*remote, *launched]

    @property
    def models(self) -> Sequence[str]:
        return list(self._gateway.fleet.snapshot.models)

    @property
    def hands_over(self) -> bool:
        """Whether one engine may read a prompt for another one."""
        return self._context.router.hands_over

    @property
    def counts(self) -> Mapping[str, int]:
        """How often the gateway did what it counts, under the names of a replay's report. ``swaps`` ended well."""
        counters, measured = self._context.counters, self._gateway.services.measured()

        def total(metric: str) -> int:
            """The sum of a metric of services over all labels."""
            found = (each for figures in measured for each in figures.items())
            return int(sum(value for info, series in found if info.name == metric for _, value in series))

        return {
            "retried": sum(counters.retries.values()),
            "hedged": sum(counters.hedges.values()),
            "continued": sum(n for (_, why, _), n in counters.continuations.items() if why != "moved"),
            "swaps": sum(sum(each.counts) for (_, how), each in counters.swaps.items() if how == "ready"),
            "failed_migrations": total("enginehouse_rescheduling_failed"),
            "empty_migrations": total("enginehouse_rescheduling_empty"),
        }

    @property
    def decisions(self) -> Sequence[Mapping[str, Any]]:
        """The last 1000 routing decisions, oldest first, each as ``GET /api/decisions`` shows it."""
        return self._context.decisions.last(MOST)[::-1]

    @property
    def waiting(self) -> int:
        return len(self._gateway.engines.waiting()) + len(self._context.waiting_room)

    async def open(self) -> None:
        """Start as ``serve`` does, and wait for the models to preload."""
        await asyncio.sleep(_START_S)
        await self._gateway.start()
        self._gateway.every_second.stop()  # nobody looks at figures over virtual time
        await self._gateway.settled()
        preloaded = [name for name, model in self.config.models.items() if model.launches and model.preload]
        await asyncio.gather(*(self._gateway.engines.load(name) for name in preloaded))

    def submit(self, request: InferenceRequest, body: bytes, client: VirtualClient, key: str = "") -> None:
        """Submit a whole request. ``client`` learns what becomes of it, possibly before this returns.

        ``body`` is what engines get; the gateway decides by ``request``. ``key``: the name of a configured key, whose
        limits count. Raises ``Unauthorized`` for an unknown one.
        """
        caller = self._gateway.admission.authentication.named(key) if key else None
        if key and caller is None:
            raise Unauthorized(f"The configuration has no key '{key}'")
        exchange = self._gateway.relay.open(client, request.path, request.headers, request)
        exchange.begin(body, caller)

    async def close(self) -> None:
        await self._gateway.stop()
        self._folder.cleanup()


class _VirtualOutside(Outside, Connector):
    """``backends``: by the addresses of the engines that are simulated."""

    def __init__(self, engines: VirtualEngines, backends: Mapping[str, str], seed: int) -> None:
        now = asyncio.get_running_loop().time
        super().__init__(Clock(now, now), self, random.Random(seed).random)
        self._engines = engines
        self._backends = backends

    def driver(self, configured: DriverSupport) -> DriverSupport:
        played = support_of(self._engines.driver(bootstraps=configured.bootstrap is not None))
        return played._replace(launch=configured.launch, hand_over=configured.hand_over)

    def migrator(self, type: str, configured: Migrator) -> Migrator:
        return self._engines.migrator(type, configured)

    async def connect(self, protocol: asyncio.Protocol, origin: Origin, tls: ssl.SSLContext | None) -> None:
        self._engines.connect(self._backends[f"http://{origin.host}"], protocol)


def _registered(launcher: VirtualLauncher) -> Registered:
    return Registered(
        entry_point=_LAUNCHER,
        module=__name__,
        distribution="enginehouse",
        version="",
        kind="launcher",
        type=_LAUNCHER,
        factory=lambda: launcher,
    )


def _managed(config: Config) -> Iterator[tuple[str, str]]:
    """The backends that launched models may have, each with its model."""
    for model, settings in config.models.items():
        for backend in settings.possible_backends(model):
            yield backend, model


def _reached(config: Config, addresses: Mapping[str, str]) -> Config:
    """``config`` with virtual addresses, a virtual launcher on each host, and without exports and a usage store."""
    replace = msgspec.structs.replace
    hosts = {name: config.host_settings(name) for name in [*config.hosts, *hosts_of(config)]}
    return replace(
        config,
        backends={name: replace(each, url=addresses[name], kv_events=None) for name, each in config.backends.items()},
        hosts={name: replace(each, launcher=_LAUNCHER, placement={}) for name, each in hosts.items()},
        models={name: replace(each, placement={}, kv_events=False) for name, each in config.models.items()},
        telemetry=replace(config.telemetry, traces="off", push_metrics=0.0, genai_metrics=False, access_log=False),
        usage=UsageSettings(store="none"),
    )


_LAUNCHING = ("driver", "path", "command")


class VirtualSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The changes that a simulation makes to a configuration.

    Without ``file``, the gateway has one backend and default values. ``values`` has keys such as ``routing.strategy``
    with their values, both as text. ``instances`` is the number of engines for each model, in place of the configured
    one; remote backends that serve the same models are repeated in their order. ``seed``: of the strategy ``random``,
    if the configuration has none for it, and of all chance.
    """

    file: Path | None = None
    values: tuple[tuple[str, str], ...] = ()
    instances: int | None = None
    seed: int = 0

    def load(self) -> LoadedConfig:
        """The changed configuration. Raises ``ConfigError``."""
        document, found = find_document(self.file, os.environ) if self.file is not None else ({}, None)
        self._change(document)
        return read_document(document, found, os.environ)

    def gateway(self, engines: VirtualEngines) -> VirtualGateway:
        """A virtual gateway with this configuration. Raises ``ConfigError`` or ``PluginError``."""
        return VirtualGateway.of(self.load(), engines, self.seed)

    def _change(self, document: dict[str, Any]) -> None:
        if self.file is None:
            document["backends"] = {"engine": {"url": "http://engine", "driver": "sim"}}
        document.setdefault("plugins", {}).setdefault("random", {}).setdefault("seed", self.seed)
        for key, text in self.values:
            _merge(document, _parsed(key, text))
        if self.instances is not None:
            _repeat_backends(document, self.instances)
            for model in _tables(document.get("models")):
                if any(key in model for key in _LAUNCHING):
                    model["replicas"] = self.instances


def _parsed(key: str, text: str) -> dict[str, Any]:
    """``key = text`` as a document. A text that is no TOML value is a string."""
    for value in (text, json.dumps(text)):
        with suppress(msgspec.DecodeError):
            return msgspec.toml.decode(f"{key} = {value}", type=dict[str, Any])
    raise ConfigError("is not the name of a key", key=key, remedy="write it as in the file: routing.strategy")


def _merge(document: dict[str, Any], change: dict[str, Any]) -> None:
    """Put the innermost tables of ``change`` into ``document``."""
    for key, value in change.items():
        inner = document.get(key)
        if isinstance(value, dict) and isinstance(inner, dict):
            _merge(inner, value)
        else:
            document[key] = value


def _repeat_backends(document: dict[str, Any], instances: int) -> None:
    backends = document.get("backends")
    if not isinstance(backends, dict):
        return
    groups: dict[str, list[str]] = {}
    for name, backend in backends.items():
        models = backend.get("models") if isinstance(backend, dict) else None
        groups.setdefault(repr(sorted(models or ())), []).append(name)
    repeated: dict[str, Any] = {}
    for names in groups.values():
        for number in range(instances):
            name, copy = names[number % len(names)], number // len(names) + 1
            repeated[f"{name}-{copy}" if copy > 1 else name] = backends[name]
    document["backends"] = repeated


def _tables(tables: Any) -> Iterable[dict[str, Any]]:
    return [table for table in tables.values() if isinstance(table, dict)] if isinstance(tables, dict) else ()
