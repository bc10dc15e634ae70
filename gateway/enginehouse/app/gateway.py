"""The whole gateway."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from enginehouse.aio.serving import SERVING
from enginehouse.app.build_router import RouterPlugins
from enginehouse.app.callers import Callers, SharedAccounts
from enginehouse.app.config_change import CurrentConfig, build_host_context, probe_backend
from enginehouse.app.needs import unmet_needs
from enginehouse.app.pages import Pages
from enginehouse.app.path_plugins import PathPlugins
from enginehouse.app.plan import GatewayPlan, warn_of_missing
from enginehouse.app.reload import ConfigSource, Reloader
from enginehouse.app.request_path import RequestPath
from enginehouse.app.sampling import EverySecond
from enginehouse.app.services.service_runner import Services, prepare_services
from enginehouse.app.strategy_memory import StrategyMemory
from enginehouse.config.load_config import LoadedConfig
from enginehouse.config.schema import Config
from enginehouse.domain.errors import PluginError
from enginehouse.engines.launch_line import launch_rules
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.engines.probing import Prober
from enginehouse.engines.state_file import StateFile, state_folder
from enginehouse.http.health_pages import HealthPages
from enginehouse.http.page_facts import MeasuredGateway, WorkerFigures
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.relay import shutting_down
from enginehouse.relay.upstream.outside import Outside
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.telemetry.logs import GatewayLog
from enginehouse.telemetry.loop_load import LoopLoad, worker_row
from enginehouse.telemetry.plugin_times import PluginTimes
from enginehouse.telemetry.swap_reports import SwapReports

_log = logging.getLogger(__name__)
_SILENCE_S = 0.3
"""The longest pause between the first probes of two backends for which the start waits."""


class Gateway:
    """A whole gateway, built from its configuration. ``start`` and ``stop`` begin and end its background work.

    ``log`` keeps the gateway's own log. ``source`` is read when the configuration is reloaded; without one, it stays.
    ``outside``: the clock and the way to engines, by default this machine's. ``shared``: what processes of the gateway
    share. ``workers`` lists those that relay requests. ``replace``: starts another gateway that takes over and returns
    its process id; set by a server that can.
    """

    replace: Callable[[], Awaitable[int]] | None = None
    _state_file: StateFile | None = None
    _drained: asyncio.Future[None] | None = None
    _first_round: asyncio.Future[None] | None = None
    _settling: asyncio.Future[None] | None = None
    _looking: asyncio.Future[None] | None = None

    def __init__(
        self,
        config: Config,
        registry: Registry,
        log: GatewayLog | None = None,
        source: ConfigSource | None = None,
        outside: Outside | None = None,
        shared: SharedAccounts | None = None,
    ) -> None:
        outside = outside or Outside()
        plan = GatewayPlan(config, registry, outside, {}, unmet_needs(config, registry))
        callers = plan.findings.collect(lambda: Callers(config, registry, outside.clock, shared))
        services = prepare_services(plan)
        plugins = PathPlugins(plan.config, registry, outside, plan.findings)
        router = RouterPlugins(plan.config, registry, plan.findings)
        plan.check_launches({})
        assert callers is not None, "its error has been raised"
        config = plan.config
        for warning in plan.warnings:
            _log.warning("%s", warning)
        self.registry = registry
        self.log = log or GatewayLog()
        self.closing = asyncio.Event()
        queues: dict[str, HostQueue] = {}
        self.path = path = RequestPath(
            config, registry, plan.drivers, outside, queues, self.log, None, callers, plugins, router, observed=True
        )
        self.observers, self.fleet, self.relay, self.exporter = path.observers, path.fleet, path.relay, path.exporter
        self.callers, self.admission = callers, path.admission
        upstreams, rules = path.relay.context.upstreams, launch_rules(config)
        context = build_host_context(config, path, upstreams, plan.drivers, rules)
        self.engines = ManagedEngines(context, queues)
        self.observers.add(SwapReports(self.relay.context.counters, outside.clock.now))
        self.every_second = EverySecond(outside.clock.epoch, self._sample_plugins)
        self._prober = Prober(self.fleet, config.checks, outside.chance)
        self.current = CurrentConfig(path, self.engines, self._prober, context)
        self.services = Services(self.current, services)
        source = source or ConfigSource(lambda: LoadedConfig(config, None, ()), None)
        self.reloader = Reloader(self.current, self.services, source, self.callers.note)
        self._strategy_memory = StrategyMemory(
            lambda: self.relay.context.router.strategies.memories(),
            lambda kept: self.relay.context.router.strategies.recall(kept),
        )
        self.workers = self._alone
        self._loop_load = LoopLoad()
        self.plugin_times = PluginTimes()
        self.health = HealthPages(self.relay)
        self.worker_figures = WorkerFigures({}, {})
        if self.exporter is not None:
            self.exporter.prepare(config, registry, lambda: self.application.state.facts.metrics(), self.observers)
        self.application = Pages(
            self.current,
            self.services,
            self.reloader,
            self.every_second,
            self.closing,
            self.health,
            MeasuredGateway(
                self.admission.body_memory,
                lambda: [*self.services.measured(), self.callers.accounting.measure()],
                lambda: self.worker_figures,
                self.plugin_times,
            ),
            self._folder,
            lambda: self.workers(),
            lambda: self.replace,
        ).application()

    @property
    def config(self) -> Config:
        return self.current.config

    def build_hosts(self, state_file: StateFile | None = None, drained: asyncio.Future[None] | None = None) -> None:
        """Make the hosts of launched engines. Raises ``ConfigError`` or ``PluginError``. Nothing is started.

        ``state_file`` keeps the running engines; by default, it is in the folder of this gateway. ``drained``: when the
        gateway from which this one takes over no longer uses them.
        """
        self._drained = drained
        self._state_file = state_file or StateFile(state_folder(self.config.server.name))
        self.path.open(self._state_file.folder)
        self.callers.warn_of_missing_operators()
        try:
            self.engines.build(self._state_file, self._prober, self.relay.drains)
        except PluginError as error:
            if error.distribution:
                raise
            scheduler = self.registry.get("scheduler", self.config.scheduling.scheduler)
            raise scheduler.error(error.problem) from error

    async def start(self) -> None:
        """Start to probe backends, and take over engines that still run. ``settled`` waits for the first probes."""
        self.path.start()
        self._looking = asyncio.ensure_future(warn_of_missing(self.current.context))
        self.every_second.start()
        if self.exporter is not None:
            self.exporter.start()
        first_round = self._begin_probing()
        if self._state_file is None:
            self.build_hosts()
        await self.callers.start()
        assert self._state_file is not None
        await self._strategy_memory.open(self._state_file.folder)
        # engines that an earlier gateway has left are taken over only for backends that there are
        self.current.recall(self._state_file.records)
        await self.engines.open(self._drained)
        self.path.follow_caches()
        self.reloader.open()
        started = asyncio.ensure_future(self.services.start())
        # a take-over stops no engine: clients of the earlier gateway use them
        self.engines.preload(makes_room=self._drained is None)
        self._settling = asyncio.ensure_future(self._settle(first_round, started))

    async def probed(self) -> None:
        """Probe the remote backends before ``start``, and wait until each has answered, or for the time limit."""
        await asyncio.wait([self._begin_probing()], timeout=self.config.checks.timeout)

    def _begin_probing(self) -> asyncio.Future[None]:
        if self._first_round is not None:
            return self._first_round
        for name in self.config.backends:
            probe_backend(name, self._prober, self.engines, self.current.context)
        self._first_round = asyncio.ensure_future(self._prober.first_round(_SILENCE_S))
        return self._first_round

    async def settled(self) -> None:
        """Wait until every remote backend was probed once. One that does not answer delays this by a moment only.

        Requests that come before get 503 for models of a backend that was not probed yet.
        """
        if self._settling is not None:
            await asyncio.wait([self._settling])

    async def _settle(self, *firsts: asyncio.Future[None]) -> None:
        await asyncio.wait(firsts, timeout=self.config.checks.timeout)
        self.current.puller.start()

    def _folder(self) -> Path:
        assert self._state_file is not None, "the hosts are built first"
        return self._state_file.folder

    # --- another gateway takes over

    @property
    def state_folder(self) -> Path | None:
        """The folder by which another gateway takes over; ``None`` if the next one will not find it."""
        state_file = self._state_file
        return None if state_file is None or state_file.lock is None else state_file.folder

    async def pause(self) -> int:
        """Touch no engine, and leave the state folder to another gateway. Returns the descriptor of its lock.

        Returns when acts in progress, such as an engine's stop, have ended.
        """
        await self._strategy_memory.save()
        await self.engines.ownership.pause()
        assert self._state_file is not None
        assert self._state_file.lock is not None
        self._state_file.leave()
        return self._state_file.lock

    async def resume(self) -> None:
        """Go on as before ``pause``. Engines that the other gateway has launched meanwhile are stopped."""
        assert self._state_file is not None
        await self.engines.take_back(self._state_file.take_back())

    def give_up(self) -> None:
        """Leave the engines, and the files, to the gateway that has taken over. Live requests continue."""
        assert self._state_file is not None
        self._state_file.leave()
        self.engines.ownership.give_up()
        self._strategy_memory.close()
        self._stop_changes()
        self.closing.set()

    def _stop_changes(self) -> None:
        """Change the configuration no more, and stop the services."""
        self.reloader.close()
        self.services.stop()
        self.current.puller.stop()

    # --- the end

    def refuse_new(self) -> None:
        """Refuse new requests. Live requests continue, but not those that wait for a load.

        Endless streams of operators' pages end.
        """
        self.relay.refuse_new()
        self.closing.set()
        self.engines.reject_loads(shutting_down())

    def end_live(self) -> None:
        """End live requests, and the loads and unloads that operators wait for."""
        self.relay.close()
        self.engines.reject_waiting(shutting_down())

    async def stop(self) -> None:
        self.refuse_new()
        for task in (self._settling, self._looking):
            if task is not None:
                task.cancel()
        self.every_second.stop()
        self._stop_changes()
        self.relay.close()
        self._prober.close()
        await self.services.stopped()
        self.path.caches.close()
        await self._strategy_memory.save()
        self._strategy_memory.close()
        await self.engines.close(shutting_down())
        if self._state_file is not None:
            self._state_file.close()
        await self.path.close()
        if self.exporter is not None:
            await self.exporter.close()

    def _alone(self) -> Sequence[Mapping[str, Any]]:
        """The worker that this process itself is."""
        return [worker_row(os.getpid(), len(self.relay.live), self.current.version, self._loop_load.share())]

    def _sample_plugins(self) -> None:
        """Measure the next call of every plugin, on the path of requests and of loads, in a process that serves."""
        if SERVING.is_stopping is None:
            return
        for calls in (self.relay.context.router.sampled, self.engines.sampled, self.observers.sampled):
            self.plugin_times.sample(calls)


def rehearse_start(config: Config, registry: Registry) -> Config:
    """The configuration as a gateway with ``config`` uses it.

    Raises the error that keeps the gateway from starting: ``ConfigError`` or ``PluginError``. No process, probe or
    request is started, and nothing remains on disk.
    """
    return asyncio.run(_build(config, registry))  # a loop, because plugins may ask for the time while they are prepared


async def _build(config: Config, registry: Registry) -> Config:
    with TemporaryDirectory() as folder:
        state_file = StateFile(Path(folder))
        try:
            gateway = Gateway(config, registry)
            gateway.build_hosts(state_file)
            await warn_of_missing(gateway.current.context)
            return gateway.config
        finally:
            state_file.close()
