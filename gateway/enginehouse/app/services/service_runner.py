"""Starts and stops services."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from enginehouse.app.config_change import CurrentConfig
from enginehouse.app.needs import service_table
from enginehouse.app.plan import GatewayPlan
from enginehouse.app.plugin_instances import create, identity, prepare
from enginehouse.app.services.service_access import GatewayInForce, ServiceAccess
from enginehouse.app.services.service_calls import ServiceCalls, ServicePages
from enginehouse.config.schema import Config
from enginehouse.config.shape import dotted
from enginehouse.interfaces.services import Measured, Service
from enginehouse.plugin_manager.registry import Registry
from enginehouse.telemetry.counters import label_texts
from enginehouse.telemetry.observers import for_json


class ServiceRun:
    """One service, made and prepared as ``plan`` has it. Raises ``ConfigError`` or ``PluginError``."""

    def __init__(self, plan: GatewayPlan, type: str) -> None:
        config, registry = plan.config, plan.registry
        key, own = dotted(config.service_path(type)), config.service_tables.get(type)
        self._calls = ServiceCalls(identity(registry, "service", type, key))
        self._seen = GatewayInForce(config)
        self._access = ServiceAccess(self._seen, registry, plan.outside, self._calls, plan.warnings.append)
        self._service: Service = create(config, registry, "service", type, key, own, key)
        prepare(registry, "service", type, partial(self._service.prepare, self._access))

    def join(self, current: CurrentConfig, pages: ServicePages) -> None:
        """Let the service see the whole gateway, whose configuration in force is its own, and add its routes there."""
        self._seen.in_force, self._calls.pages = current, pages

    def start(self, after: Collection[asyncio.Task[None]] = ()) -> asyncio.Task[None]:
        """Start the service, once ``after`` are done; the task ends when it has started, or failed."""
        return self._calls.start(partial(self._service.start, self._access), after)

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
        return self._calls.ask(lambda: for_json(self._service.status())) or {}

    def measure(self) -> Measured:
        """Its figures."""
        return self._calls.ask(lambda: _checked(self._service.measure())) or {}


def _checked(measured: Measured) -> Measured:
    """``measured`` with a text for each label and a number for each series. Raises if it is anything else."""
    return {
        metric: [(label_texts(metric, labels), value + 0.0) for labels, value in series]
        for metric, series in measured.items()
    }


ServiceRuns = Mapping[str, ServiceRun]


def prepare_services(plan: GatewayPlan) -> ServiceRuns:
    """The services that the configuration of ``plan`` wants, prepared for it. The plan learns of errors."""
    wanted = _wanted(plan.config, plan.registry)
    runs = {type: plan.findings.collect(partial(ServiceRun, plan, type)) for type in wanted}
    return {type: run for type, run in runs.items() if run is not None}


def _wanted(config: Config, registry: Registry) -> Sequence[str]:
    """The types that run: those with a table of their own, and those for which ``config`` has one."""
    own = [type for type in registry.types("service") if service_table(registry, type)]
    return [*own, *(type for type in config.service_tables if type not in own)]


class Services:
    """The services of the gateway, and their ``pages``. ``runs``: prepared for its configuration."""

    def __init__(self, current: CurrentConfig, runs: ServiceRuns) -> None:
        self.pages = ServicePages([], [])
        self._current = current
        self._config = current.path.config
        self._is_open = False
        self._ending: list[asyncio.Task[None]] = []
        self._runs = dict(runs)
        for run in runs.values():
            run.join(current, self.pages)

    async def start(self) -> None:
        """Start all, and wait until they have started."""
        self._is_open = True
        if self._runs:
            await asyncio.wait([run.start() for run in self._runs.values()])

    def reconfigure(self, runs: ServiceRuns) -> None:
        """Act on another configuration, which is in force: start, stop and tell services.

        ``runs``: prepared for a configuration that it may not have in all, as changes of some keys need a restart.
        """
        before, self._config = self._config, self._current.path.config
        wanted = _wanted(self._config, self._current.path.registry)
        self._ending = [each for each in self._ending if not each.done()]
        for type in [*self._runs]:
            if type not in wanted or before.service_tables.get(type) != self._config.service_tables.get(type):
                self._ending.append(self._runs.pop(type).stop())
        for type in wanted:
            if type in self._runs:
                self._runs[type].reconfigure()
                continue
            self._runs[type] = run = runs[type]
            run.join(self._current, self.pages)
            if self._is_open:
                run.start([*self._ending])  # it may need what the one before still has

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

    def measured(self) -> Sequence[Measured]:
        """Their figures."""
        return [run.measure() for run in self._runs.values()]
