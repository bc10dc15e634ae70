"""One host: its engines and the queue of their requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

import msgspec

from enginehouse.config.schema import BackendSettings
from enginehouse.config.units import parse_ports
from enginehouse.domain.errors import (
    ConfigError,
    EnginehouseError,
    LoadFailed,
    ModelNotFound,
    NotFound,
    ReplicaLost,
    RequestError,
)
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.engines.engine import Engine, EngineListener
from enginehouse.engines.engine_cache import CacheFolders
from enginehouse.engines.gpus import host_gpus
from enginehouse.engines.host_context import HostContext, ManagedReplica
from enginehouse.engines.launches import Launches, Ports
from enginehouse.engines.left_engines import LeftEngines
from enginehouse.engines.loads import preload
from enginehouse.engines.model_files import ModelFiles
from enginehouse.engines.model_servers import ModelServers
from enginehouse.engines.probing import ProbedEngine, Prober
from enginehouse.engines.start import NOWHERE
from enginehouse.engines.state_file import EngineOwnership, StateFile
from enginehouse.interfaces.drivers import ServedModel
from enginehouse.interfaces.launch_spec import ModelFacts
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.schedulers import SchedulingLimits
from enginehouse.interfaces.swappers import HostFacts
from enginehouse.relay.moves.drains import Drains
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.guarded_swapper import GuardedSwapper
from enginehouse.scheduling.host_engines import EngineControl
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.scheduling.scheduling_rules import host_limits, hosted_replica, swapper_text
from enginehouse.telemetry.observers import notify

_log = logging.getLogger(__name__)

_MEASURE_EVERY_S = 30.0
_UNUSED = (*AT_REST, ReplicaState.PLACING, ReplicaState.SLEEPING)
"""The states of an engine that serves no request, and that a swap may be about to start."""


class HostChange(NamedTuple):
    """A prepared change of one host to the configuration of ``context``.

    ``swapper``: already prepared for ``facts``; ``None`` if what the scheduler decides by does not change.
    """

    context: HostContext
    managed: Mapping[str, ManagedReplica]
    facts: HostFacts
    limits: SchedulingLimits
    swapper: GuardedSwapper | None


class Host(EngineControl, EngineListener):
    """Has the engines of one host, and the queue that orders them and whose requests they serve.

    It keeps the fleet, the relay's upstreams, the prober and observers up to date with what happens to the engines.
    ``engines``: by replica, those included that are being removed. ``left``: those of other gateways. ``facts`` and
    ``swapper``: what the scheduler decides by. A change of configuration has five steps. ``prepare`` may fail and
    changes nothing. Then each step runs on every host before the next one: ``retire_removed``, ``put_replicas``,
    ``put_rules`` and ``reject_removed``.
    """

    def __init__(
        self,
        name: str,
        context: HostContext,
        ports: Ports,
        state_file: StateFile,
        prober: Prober,
        drains: Drains,
        ownership: EngineOwnership,
        caches: CacheFolders,
    ) -> None:
        self.name = name
        self._prober = prober
        self._drains = drains
        self._context = context
        self._on_replica_state = context.observers.callbacks("replica_state")
        settings = context.config.host_settings(name)
        launcher = context.make_launcher(settings.launcher, name)
        self.gpus = host_gpus(settings, launcher)
        self._launches = Launches(
            name,
            launcher,
            ports.within(*parse_ports(settings.ports)),
            state_file,
            self.gpus,
            ownership,
            caches,
            context.downloads,
        )
        self.engines: dict[str, Engine] = {}
        self.left = LeftEngines(self._launches, self.engines)
        managed = context.managed(name)
        for replica, each in managed.items():
            self.engines[replica] = self._engine(each)
        self.servers = ModelServers(name, context, self._note_found)
        self._has_released = False
        self._drained: asyncio.Future[None] | None = None
        self._files = ModelFiles(self._note_facts)
        self.facts = self._facts_by(context, managed)
        self.swapper = context.make_swapper(self.facts)
        self.queue = HostQueue(name, context.make_scheduler(), self, context.observers, context.scheduler)
        self.queue.prepare(self.swapper, self.facts, host_limits(context.config, name))

    def _engine(self, managed: ManagedReplica) -> Engine:
        return Engine(managed, self._launches, connect=partial(self._connect, managed.backend), listener=self)

    def _connect(self, backend: str, address: str) -> ProbedEngine:
        """HTTP to an engine that the relay does not use yet, or to a server elsewhere."""
        context = self._context
        if backend in context.config.backends:
            return Client(context.upstreams[backend], None)
        upstream = context.upstreams.get(backend)
        if upstream is None:  # its replica is being removed
            upstream = Upstream(backend, BackendSettings(url=address), context.config.timeouts, context.outside)
        return Client(upstream, None, ahead=upstream.ahead(address))

    def begin(self) -> None:
        """Begin the background work, on a host where no engine can be left running."""
        self._launches.tasks.start(self._keep_measuring())
        self.gpus.begin()
        self._read_files()

    async def open(self, drained: asyncio.Future[None] | None = None) -> None:
        """Begin the background work, and take over the engines that an earlier gateway left running here.

        ``drained``: when that gateway no longer uses them, if it still runs.
        """
        self._drained = drained
        self.begin()
        await self.left.take_over(drained)

    async def close(self, error: RequestError) -> None:
        """Refuse the waiting requests with ``error``, and stop every engine that is still this gateway's.

        Servers elsewhere keep what they have loaded.
        """
        self._files.close()
        self.servers.close()
        await self.queue.close(error)
        self._launches.close()
        stays = self._launches.ownership.given_up
        ends = (each.leave() if stays or each.elsewhere else each.stop() for each in self.engines.values())
        await asyncio.gather(*ends, return_exceptions=True)

    # --- replicas

    def kept(self) -> Mapping[str, Engine]:
        """The engines of the replicas that are not being removed."""
        return {replica: engine for replica, engine in self.engines.items() if engine.removal is None}

    @property
    def is_used(self) -> bool:
        """Whether it has replicas, or an earlier gateway has left engines here that still run."""
        return bool(self.engines or self.left.records)

    def of_model(self, model: str) -> Sequence[str]:
        """The kept replicas of ``model``, in their order."""
        return [replica for replica, engine in self.kept().items() if engine.managed.model_name == model]

    def of_backend(self, backend: str) -> Sequence[str]:
        """The kept replicas that are launched or loaded at ``backend``."""
        return [replica for replica, engine in self.kept().items() if engine.managed.backend == backend]

    def model_facts(self) -> Mapping[str, ModelFacts]:
        """What is known of each model from its files."""
        return {self.engines[replica].managed.model_name: each for replica, each in self._files.facts.items()}

    def preload(self, replicas: Iterable[str]) -> None:
        """Begin to load ``replicas``, each in its turn."""
        for replica in replicas:
            self._launches.tasks.start(preload(self.queue, replica))

    def fitting(self, replicas: Iterable[str]) -> Sequence[str]:
        """Those of ``replicas`` that can be loaded beside what runs, and beside those before them."""
        before = self.queue.least_recently_used()
        running = [*before]
        for replica in replicas:
            evict: Sequence[str] = ()
            with suppress(RequestError):  # its load will fail with that
                evict = self.swapper.eviction_for(replica, running)
            if not evict and replica not in running:
                running.append(replica)
        return running[len(before) :]

    def discover(self, backend: str, served: Sequence[ServedModel]) -> None:
        """Take the models that a server elsewhere lists, and begin to preload new ones."""
        if self.servers.discover(backend, served):
            self._put_listed()

    def _put_listed(self) -> None:
        """Have the replicas that are configured or listed now, and begin to preload the new ones."""
        listed = {**self._context.managed(self.name), **self.servers.replicas(self._context)}
        new = {replica: managed for replica, managed in listed.items() if replica not in self.engines}
        for replica, engine in self.kept().items():
            if replica not in listed and engine.shown in AT_REST:  # else its model is still loaded
                self.queue.reject([replica], self._removed_error)
                self._remove(replica)
        for replica, managed in new.items():
            self.engines[replica] = self._engine(managed)
        self._sort(listed)
        self._read_files()
        try:
            self.put_rules(self._changed(self._context, listed))
        except EnginehouseError as error:
            _log.error("The rules of [scheduling] do not fit the models of host '%s': %s", self.name, error)
        self.preload(replica for replica, managed in new.items() if managed.model.preload)

    async def unload(self, replicas: Sequence[str], force: bool) -> None:
        """Refuse the requests that wait for ``replicas`` of a model, stop these, and wait until they have stopped.

        Streams move to other ready replicas. Other requests in flight may finish within ``server.drain_timeout``; with
        ``force`` they are cut off at once.
        """
        managed = self.engines[replicas[0]].managed
        used = [] if force else [each for each in replicas if self.engines[each].shown not in _UNUSED]
        self.queue.note_unload(used)
        within = self._context.config.server.drain_timeout
        ends = [self._retire(replica, within) for replica in used]
        text = f"Model '{managed.model_name}' was unloaded while the request waited for it"
        self.queue.reject(used, lambda _: LoadFailed(text))
        if others := [replica for replica in replicas if replica not in used]:
            await self.queue.unload(others, managed.model.stop_timeout)
        await asyncio.gather(*map(asyncio.shield, ends))

    def release_idle(self) -> None:
        """Put replicas to sleep, or stop them, that have been idle for their ``ttl``, once no earlier gateway uses any.

        Begin to load the others again that are to be there while the host is empty.
        """
        if self._drained is not None and not self._drained.done():
            return
        kept = {replica: engine.managed.model for replica, engine in self.kept().items()}
        ttls = {replica: model.ttl for replica, model in kept.items()}
        for replica in self.queue.due(ttls):
            self.engines[replica].rest()
            self._has_released |= kept[replica].preload != "again"
        states = {*self.states().values()} - {*AT_REST, ReplicaState.SLEEPING}
        if self._has_released and ReplicaState.STOPPING not in states:
            self._has_released = False
            self.preload(replica for replica, model in kept.items() if not states and model.preload == "again")

    def rest(self, replicas: Sequence[str]) -> None:
        """Put those of ``replicas`` to sleep, or stop them, that are ready and serve no request.

        One that an earlier gateway still uses rests later.
        """
        for replica in replicas:
            engine = self.engines.get(replica)
            if engine is None or engine.shown is not ReplicaState.READY or self.queue.in_flight(replica):
                continue
            if engine.run is not None and engine.run.is_shared:
                self._launches.tasks.start(self._rest_later(replica))
            else:
                engine.rest()

    async def _rest_later(self, replica: str) -> None:
        await self.freed(replica)
        self.rest([replica])

    # --- changes of the configuration

    def prepare(self, context: HostContext) -> HostChange:
        """Prepare a change to the configuration of ``context``. Raises ``ConfigError``."""
        if context.config.host_settings(self.name).launcher != self._context.config.host_settings(self.name).launcher:
            problem, remedy = "engines of its earlier launcher are still stopping", "try again when they have stopped"
            raise ConfigError(problem, key=f"hosts.{self.name}.launcher", remedy=remedy)
        return self._changed(context, {**context.managed(self.name), **self.servers.replicas(context)})

    def _changed(self, context: HostContext, managed: Mapping[str, ManagedReplica]) -> HostChange:
        facts, config, before = self._facts_by(context, managed), context.config, self._context.config
        limits = host_limits(config, self.name)
        same = facts == self.facts and limits == host_limits(before, self.name)
        same = same and swapper_text(config) == swapper_text(before)
        return HostChange(context, managed, facts, limits, None if same else context.make_swapper(facts))

    def _facts_by(self, context: HostContext, managed: Mapping[str, ManagedReplica]) -> HostFacts:
        """The facts of the host, with the live figures of its engines and of their files.

        They include replicas that are being retired, which may be evicted even if they were pinned.
        """
        settings, learned = context.config.host_settings(self.name), self._launches.learned
        hosted = partial(hosted_replica, context.config)
        replicas = {name: hosted(each.model_name, each.backend, each.model) for name, each in managed.items()}
        for name, engine in self.engines.items():
            if name not in managed:
                was = engine.managed
                replicas[name] = msgspec.structs.replace(hosted(was.model_name, was.backend, was.model), pin=False)
        return msgspec.structs.replace(
            context.facts(self.name),
            memory=self.gpus.total(settings) if settings.memory is None else settings.memory,
            replicas=replicas,
            measured=learned.measured,
            asleep=learned.asleep,
            reported=learned.reported,
            estimated=self._files.estimated,
        )

    def put_rules(self, change: HostChange) -> None:
        """Have the scheduler decide by what a change has prepared."""
        self.facts = change.facts
        if change.swapper is None:
            return
        self.swapper = change.swapper
        try:
            self.queue.reconfigure(change.swapper, change.facts, change.limits)
        except Exception:  # the change is in force on other hosts already
            _log.exception("The scheduler of host '%s' did not take its new configuration", self.name)

    def retire_removed(self, change: HostChange, within: float) -> Mapping[str, asyncio.Task[None]]:
        """Retire the replicas that the change removes: drain them for at most ``within`` seconds, then stop them.

        Returns the task of each retirement, by backend.
        """
        for replica, engine in self.kept().items():
            if replica not in change.managed:
                if not engine.elsewhere:  # its requests in flight continue
                    self._prober.remove(engine.managed.backend)
                self._leave_service(engine)
                engine.removal = asyncio.ensure_future(self._remove_later(engine, within))
        engines = self.engines.values()
        return {each.managed.backend: each.removal for each in engines if each.removal is not None}

    def put_replicas(
        self, change: HostChange, relaunched: Collection[str], retiring: Mapping[str, asyncio.Task[None]], within: float
    ) -> None:
        """Add and update replicas. Engines of the models ``relaunched`` are retired as in ``retire_removed``.

        ``retiring``: the results of ``retire_removed`` of all hosts.
        """
        before, self._context = self._context.config, change.context
        self.servers.reconfigure(change.context)
        self._launches.reconfigure(change.context.config.host_settings(self.name))
        new_checks = before.checks != change.context.config.checks
        for replica, managed in change.managed.items():
            if (engine := self.engines.get(replica)) is None:
                self.engines[replica] = engine = self._engine(managed)
            else:
                self._reconfigure(engine, managed, managed.model_name in relaunched, new_checks, within)
            if (after := retiring.get(managed.backend)) is not None:
                engine.before = after
        self._sort(change.managed)
        self._read_files()

    def _sort(self, replicas: Collection[str]) -> None:
        """Keep the engines in the order of ``replicas``, the others behind them."""
        engines = {replica: self.engines[replica] for replica in (*replicas, *self.engines) if replica in self.engines}
        self.engines.clear()
        self.engines.update(engines)

    def _reconfigure(
        self, engine: Engine, managed: ManagedReplica, relaunched: bool, new_checks: bool, within: float
    ) -> None:
        known = engine.managed
        engine.reconfigure(managed)
        if not engine.elsewhere:
            self._limit(engine)
        if engine.removal is not None or (relaunched and not engine.elsewhere):
            engine.removal = None  # the configuration has it again
            engine.begin_anew()
            if engine.shown not in AT_REST:
                self._retire(engine.replica, within)
            self._show(engine)
        elif engine.shown is ReplicaState.READY and (new_checks or not managed.probed_as(known)):
            self._probe(engine)

    def reject_removed(self) -> None:
        """Refuse the requests that wait for removed replicas; the relay may route them to another host."""
        removed = [replica for replica, engine in self.engines.items() if engine.removal is not None]
        self.queue.reject(removed, self._removed_error)

    def _removed_error(self, replica: str) -> RequestError:
        managed = self.engines[replica].managed
        if managed.model_name not in self._context.config.models and managed.server is None:
            return ModelNotFound(managed.model_name)
        return ReplicaLost(replica)

    def _retire(self, replica: str, within: float) -> asyncio.Task[None]:
        """Drain the engine of ``replica`` for at most ``within`` seconds, then stop it. Returns the task of that."""
        engine = self.engines[replica]
        self._leave_service(engine)
        self._show(engine)
        return self.queue.retire(replica, within)

    def _leave_service(self, engine: Engine) -> None:
        """Send it no more requests, and move its streams away."""
        engine.retire()
        text = f"The engine of '{engine.replica}' is being stopped; connect again"
        self._drains.retire(engine.replica, LoadFailed(text))

    async def _remove_later(self, engine: Engine, within: float) -> None:
        await self.queue.retire(engine.replica, within)
        if engine.removal is asyncio.current_task():  # else the configuration has it again
            self._remove(engine.replica)
            self._put_listed()  # another server of that name may list it too

    def _remove(self, replica: str) -> None:
        """Remove a replica whose engine is at rest."""
        self.engines.pop(replica).remove()
        self.queue.forget(replica)

    # --- orders of the queue

    def states(self) -> Mapping[str, ReplicaState]:
        return {replica: engine.shown for replica, engine in self.engines.items()}

    def state_of(self, replica: str) -> ReplicaState | None:
        engine = self.engines.get(replica)
        return None if engine is None else engine.shown

    def running(self) -> Mapping[str, ReplicaState]:
        return {replica: engine.shown for replica, engine in self.engines.items() if engine.shown not in AT_REST}

    def prepared(self, replica: str, evict: Sequence[str]) -> AbstractAsyncContextManager[None]:
        engine = self.engines.get(replica)
        if engine is None or not (evict or engine.back_off.failures):
            return nullcontext()
        return engine.prepared(evict)

    def start(self, replica: str) -> Coroutine[Any, Any, None]:
        if (engine := self.engines.get(replica)) is None:
            raise LoadFailed(f"'{replica}' is no longer configured")
        return engine.start()

    async def stop(self, replica: str, timeout: float | None) -> None:
        if (engine := self.engines.get(replica)) is not None:
            await engine.stop(timeout)

    async def freed(self, replica: str) -> None:
        if (engine := self.engines.get(replica)) is not None:
            await engine.freed()

    async def evict(self, replica: str) -> None:
        if (engine := self.engines.get(replica)) is not None:
            await engine.evict()

    # --- events of the queue

    def stopping(self, replica: str) -> None:
        self._drains.cut_off(replica, "the gateway stops the engine")

    def unloaded(self, replica: str) -> None:
        managed = self.engines[replica].managed
        if managed.server is not None:
            managed.server.note_unloaded(managed.model_name)

    def vacate(self, replica: str) -> None:
        self._drains.vacate(replica)

    # --- events of engines

    def engine_changed(self, engine: Engine) -> None:
        backend, state = engine.managed.backend, engine.shown
        if engine.removal is None:
            if not engine.elsewhere:  # the relay, and the prober, find a ready engine, and no other one
                upstream, run = self._context.upstreams[backend], engine.run
                if state is ReplicaState.READY and run is not None:
                    upstream.locate(run.process.address)
                elif upstream.pool.origin.host:
                    self._prober.remove(backend)
                    upstream.locate("")
            kept = engine.launch.cache.estimated if engine.launch.keeps_cache and state is not ReplicaState.READY else 0
            self._show(engine, engine.problem, kept)
            if state is ReplicaState.FAILED and engine.is_lost:
                self._drains.cut_off(engine.replica, engine.problem)
        notify(self._on_replica_state, engine.replica, state)

    def engine_examined(self, engine: Engine) -> None:
        if engine.removal is None and not engine.elsewhere:
            self._limit(engine)
            self._probe(engine)

    def _limit(self, engine: Engine) -> None:
        """Have the fleet know how many requests an engine serves at once."""
        limit = engine.managed.model.concurrency or self._launches.learned.reported.get(engine.replica, 0)
        self._context.fleet.load(engine.managed.backend).slots = limit

    def _note_limit(self, engine: Engine, limit: int | None) -> None:
        engine.facts.report(limit)
        self._limit(engine)

    def engine_exited(self, engine: Engine) -> None:
        self.queue.exited(engine.replica)

    def _show(self, engine: Engine, problem: str = "", cache_kept: int = 0) -> None:
        """Show routing the state of a replica. ``cache_kept``: the tokens that it has again after its launch."""
        wake_s = 0.0 if engine.shown is ReplicaState.READY else engine.wake_s
        place = NOWHERE if engine.run is None else engine.run.place
        with suppress(NotFound):  # a server elsewhere no longer lists its model
            self._context.fleet.set_state(
                engine.replica, engine.shown, wake_s, problem, cache_kept=cache_kept, node=place.node, unit=place.unit
            )

    def _probe(self, engine: Engine) -> None:
        """Probe a ready engine, soon, by the current configuration. A server elsewhere is probed anyway."""
        managed = engine.managed
        if engine.elsewhere or engine.run is None:
            return
        # on the connections of requests: those of its start are closed once it has slept
        client = Client(self._context.upstreams[managed.backend], None)
        on_concurrency = None if managed.model.concurrency else partial(self._note_limit, engine)
        self._prober.add(managed.backend, managed.driver, client, engine.check, on_concurrency, is_healthy=True)

    # --- facts

    async def _keep_measuring(self) -> None:
        while True:
            await asyncio.sleep(_MEASURE_EVERY_S)
            for engine in list(self.engines.values()):
                await engine.measure()

    def _read_files(self) -> None:
        replicas = {replica: engine.managed for replica, engine in self.kept().items()}
        self._files.follow(replicas, self.servers.estimates())

    def _note_facts(self, replica: str, facts: ModelFacts) -> None:
        engine = self.engines[replica]
        if facts.memory:
            engine.facts.expect(facts.memory)
        if engine.shown is not ReplicaState.READY:  # its engine knows better
            managed = engine.managed
            self._context.fleet.set_models(managed.backend, {managed.model_name: facts.capabilities})

    def _note_found(self, replica: str, process: EngineProcess) -> None:
        """Take over a model that a server elsewhere has loaded by itself."""
        engine = self.engines.get(replica)
        if engine is None or engine.removal is not None or engine.shown not in AT_REST:
            return
        if engine.before is None or engine.before.done():
            engine.adopt(process, NOWHERE, self._drained)
