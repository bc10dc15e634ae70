"""Starts and stops services, and contains their failures."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from prometheus_client.core import Metric
from starlette.routing import BaseRoute

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.app.metrics import numbers
from enginehouse.app.needs import service_table
from enginehouse.app.plugin_instances import create, identity, prepare
from enginehouse.app.services.service_access import GatewayParts, ServiceAccess
from enginehouse.config.schema import Config
from enginehouse.config.shape import dotted
from enginehouse.domain.errors import EnginehouseError, RequestError
from enginehouse.domain.foreign import describe
from enginehouse.domain.plugin_id import PluginId
from enginehouse.interfaces.services import Measured, Service
from enginehouse.telemetry.plugin_failures import await_plugin, plugin_errors

_STOP_S = 5.0
_HUNG_S = 60.0
"""A call that has not returned for so long is shown as hung."""


class ServicePages(NamedTuple):
    """The routes of all services, always the same lists: for operators, and for everyone with a key."""

    operators: list[BaseRoute]
    callers: list[BaseRoute]


class ServiceCalls:
    """Calls a service, and contains its failures. Its routes are added to ``pages``.

    ``state`` and ``error`` are what ``/api/status`` shows. It does not know the service, which refers to it: a gateway
    that is only built must leave no cycle.
    """

    def __init__(self, plugin: PluginId, pages: ServicePages) -> None:
        self.type = plugin.type
        self.state, self.error = "starting", ""
        self._plugin = plugin
        self._pages = pages
        self._own_pages: list[tuple[list[BaseRoute], BaseRoute]] = []
        self._tasks = BackgroundTasks()
        self._begun: dict[object, float] = {}

    @property
    def hang(self) -> bool:
        """Whether a call has not returned for long."""
        return any(_now() - began > _HUNG_S for began in self._begun.values())

    def every(self, seconds: float, call: Callable[[], Awaitable[None] | None]) -> None:
        """Call it every so many seconds. A call that takes longer delays the next one."""
        self._tasks.start(self._repeat(seconds, call))

    def add_pages(self, routes: Sequence[BaseRoute], *, for_callers: bool = False) -> None:
        """Answer these routes until ``end``."""
        pages = self._pages.callers if for_callers else self._pages.operators
        self._own_pages += [(pages, route) for route in routes]
        pages += routes

    def start(self, call: Callable[[], Awaitable[None] | None]) -> asyncio.Task[None]:
        """Begin with this call; the task ends when it has returned, or failed."""
        return self._tasks.start(self._start(call))

    def ask(self, call: Callable[[], Any]) -> Any:
        """The result of a call; ``None`` if it fails, which is logged and shown in the status."""
        try:
            with plugin_errors(self._plugin):
                return call()
        except RequestError as error:
            self.error = _text(error)
            return None

    def end(self, call: Callable[[], Awaitable[None] | None]) -> asyncio.Task[None]:
        """Call nothing any more but this; the task ends when it has returned, failed, or taken too long."""
        self._tasks.cancel()
        self.state = "stopped"
        for pages, route in self._own_pages:
            pages.remove(route)
        self._own_pages.clear()
        return asyncio.ensure_future(self._end(self.ask(call)))

    async def _start(self, call: Callable[[], Awaitable[None] | None]) -> None:
        self.state = "running" if await self._succeeds(call) else "failed"

    async def _repeat(self, seconds: float, call: Callable[[], Awaitable[None] | None]) -> None:
        began = _now()
        while True:
            await asyncio.sleep(max(0.0, began + seconds - _now()))
            began = _now()
            if await self._succeeds(call):
                self.error = ""

    async def _succeeds(self, call: Callable[[], Awaitable[None] | None]) -> bool:
        this = object()
        self._begun[this] = _now()
        try:
            await await_plugin(self._plugin, _finished, call)
        except EnginehouseError as error:
            self.error = _text(error)
            return False
        finally:
            del self._begun[this]
        return True

    async def _end(self, stopping: Awaitable[None] | None) -> None:
        if stopping is not None:
            try:
                await run_within(_STOP_S, await_plugin(self._plugin, _finished, lambda: stopping))
            except (EnginehouseError, TimeoutError) as error:
                self.error = _text(error)


class ServiceRun:
    """One service, made and prepared for ``config``. Its routes are added to ``pages``.

    Raises ``ConfigError`` or ``PluginError``.
    """

    def __init__(self, parts: GatewayParts, type: str, config: Callable[[], Config], pages: ServicePages) -> None:
        registry, key = parts.path.registry, dotted(config().service_path(type))
        self._calls = ServiceCalls(identity(registry, "service", type, key), pages)
        self._access = ServiceAccess(parts, self._calls, config)
        own = config().service_tables.get(type)
        self._service: Service = create(config(), registry, "service", type, key, own, key)
        prepare(registry, "service", type, partial(self._service.prepare, self._access))

    def start(self) -> asyncio.Task[None]:
        """Start the service; the task ends when it has started, or failed."""
        return self._calls.start(partial(self._service.start, self._access))

    def reconfigure(self) -> None:
        """Tell the service that another configuration is in force."""
        self._calls.ask(partial(self._service.reconfigure, self._access))

    def stop(self) -> asyncio.Task[None]:
        """Stop the service; the task ends when it has stopped."""
        return self._calls.end(self._service.stop)

    def row(self) -> Mapping[str, Any]:
        """What ``/api/status`` says of it."""
        calls = self._calls
        return {"name": calls.type, "state": "hung" if calls.hang else calls.state, "error": calls.error or None}

    def status(self) -> Mapping[str, Any]:
        """What the service shows itself."""
        return self._calls.ask(self._service.status) or {}

    def measure(self) -> Measured:
        """Its figures."""
        return self._calls.ask(self._service.measure) or {}


class Services:
    """The services that the configuration wants, and their ``pages``.

    Raises ``ConfigError`` or ``PluginError``.
    """

    def __init__(self, parts: GatewayParts) -> None:
        self.pages = ServicePages([], [])
        self._parts = parts
        self._registry = parts.path.registry
        self._config = parts.path.config
        self._is_open = False
        self._ending: list[asyncio.Task[None]] = []
        self._runs = {type: self._run(type) for type in self._wanted(self._config)}

    def check(self, config: Config) -> None:
        """Raise ``ConfigError`` or ``PluginError`` for what services could not do with ``config``."""
        for type in self._wanted(config):
            ServiceRun(self._parts, type, lambda: config, ServicePages([], []))

    async def start(self) -> None:
        """Start all, and wait until they have started."""
        self._is_open = True
        if self._runs:
            await asyncio.wait([run.start() for run in self._runs.values()])

    def reconfigure(self) -> None:
        """Act on another configuration, which has been checked and is in force: start, stop and tell services."""
        before, self._config = self._config, self._parts.path.config
        wanted = self._wanted(self._config)
        self._ending = [each for each in self._ending if not each.done()]
        for type in [*self._runs]:
            if type not in wanted or before.service_tables.get(type) != self._config.service_tables.get(type):
                self._ending.append(self._runs.pop(type).stop())
        for type in wanted:
            if type in self._runs:
                self._runs[type].reconfigure()
                continue
            self._runs[type] = run = self._run(type)
            if self._is_open:
                run.start()

    def stop(self) -> None:
        """Stop all. ``stopped`` waits for those that take time."""
        if self._is_open:
            self._is_open = False
            self._ending += [run.stop() for run in self._runs.values()]

    async def stopped(self) -> None:
        """Wait until all have stopped, for 5 seconds at most."""
        if self._ending:
            await asyncio.wait(self._ending)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The state of each."""
        return [run.row() for run in self._runs.values()]

    def status(self) -> Mapping[str, Any]:
        """What services show in ``/api/status`` themselves."""
        return {key: value for run in self._runs.values() for key, value in run.status().items()}

    def families(self) -> Iterator[Metric]:
        """Their metrics."""
        for run in self._runs.values():
            for metric, series in run.measure().items():
                yield numbers(metric, series)

    def total(self, metric: str) -> float:
        """The sum of a metric of services over all labels."""
        measured = [each for run in self._runs.values() for each in run.measure().items()]
        return sum(value for info, series in measured if info.name == metric for _, value in series)

    def _run(self, type: str) -> ServiceRun:
        return ServiceRun(self._parts, type, lambda: self._parts.path.config, self.pages)

    def _wanted(self, config: Config) -> Sequence[str]:
        """The types that run: those with a table of their own, and those for which ``config`` has one."""
        own = [type for type in self._registry.types("service") if service_table(self._registry, type)]
        return [*own, *(type for type in config.service_tables if type not in own)]


async def _finished(call: Callable[[], Awaitable[None] | None]) -> None:
    made = call()
    if inspect.isawaitable(made):
        await made


def _text(error: BaseException) -> str:
    """``error`` for people: what the plugin raised, if that is known."""
    return describe(error.__cause__ or error)


def _now() -> float:
    return asyncio.get_running_loop().time()
