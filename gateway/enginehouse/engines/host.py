"""One host: its engines, its queue, and the reports of their states to the rest of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from enginehouse.config.units import parse_ports
from enginehouse.domain.errors import ConfigError, LoadFailed, ModelNotFound, ReplicaLost, RequestError
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.engines.engine_pool import EnginePool
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.host_gpus import host_gpus
from enginehouse.engines.host_launcher import HostLauncher
from enginehouse.engines.host_replicas import HostReplicas, RunningEngine
from enginehouse.engines.host_rules import HostChange, HostRules
from enginehouse.engines.idle_replicas import IdleReplicas
from enginehouse.engines.model_files import ModelFiles
from enginehouse.engines.ownership import EngineOwnership
from enginehouse.engines.ports import Ports
from enginehouse.engines.probing.prober import Prober
from enginehouse.engines.remote.remote_servers import RemoteServers
from enginehouse.engines.state_file import StateFile
from enginehouse.engines.status_publisher import StatusPublisher
from enginehouse.interfaces.drivers import ServedModel
from enginehouse.interfaces.launch_spec import ModelFacts
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.swappers import SwapPlan
from enginehouse.relay.moves.drains import Drains
from enginehouse.scheduling.collaborators import QueueListener
from enginehouse.scheduling.explain import explain_swap
from enginehouse.scheduling.host_queue import HostQueue


class Host(QueueListener):
    """Connects the engines of one host with its queue and reports their states to the fleet and to observers.

    A change of configuration has five steps. ``prepare`` may fail and changes nothing. Then each step runs on every
    host before the next one: ``retire_removed``, ``put_replicas``, ``put_rules`` and ``reject_removed``.
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
    ) -> None:
        super().__init__(context.observers)
        self.name = name
        self._drains = drains
        self._context = context
        self._publisher = StatusPublisher(context, prober)
        self.replicas = HostReplicas(context.managed(name))
        self._servers = RemoteServers(name, context, self._note_found)
        self._idle = IdleReplicas()
        self._has_released = False
        self.pool = EnginePool(
            self._launcher(ports, state_file, ownership),
            self.replicas,
            connect=self._publisher.client,
            on_state=self._note_state,
            on_examined=self._note_examined,
            on_exited=lambda replica: self.queue.exited(replica),  # the queue is made later
        )
        self._files = ModelFiles(self._note_facts)
        self.rules = rules = HostRules(context, self.replicas, self.pool, self._servers, self._files)
        self.queue = HostQueue(name, context.make_scheduler(), self.pool, self, context.scheduler)
        self.queue.prepare(rules.swapper, rules.facts, rules.limits)

    def _launcher(self, ports: Ports, state_file: StateFile, ownership: EngineOwnership) -> HostLauncher:
        context, settings = self._context, self._context.config.host_settings(self.name)
        launcher = context.make_launcher(settings.launcher, self.name)
        own_ports, gpus = ports.within(*parse_ports(settings.ports)), host_gpus(settings, launcher)
        return HostLauncher(
            self.name, launcher, own_ports, state_file, gpus, ownership, context.caches, context.downloads
        )

    def begin(self) -> None:
        """Begin the background work, on a host where no engine can be left running."""
        self.pool.begin()
        self._servers.begin()
        self._read_files()

    async def open(self, drained: asyncio.Future[None] | None = None) -> None:
        """Begin the background work, and take over the engines that an earlier gateway left running here.

        ``drained``: as for ``EnginePool.open``.
        """
        self._servers.begin()
        self._read_files()
        await self.pool.open(drained)

    @property
    def empty(self) -> bool:
        """Whether the host has no replica, not even one that is being retired."""
        return not self.replicas

    def discover(self, backend: str, served: Sequence[ServedModel]) -> Sequence[str]:
        """Take the models that a server elsewhere lists. Returns the new replicas that are to be preloaded."""
        if not self._servers.discover(backend, served):
            return ()
        listed = {**self._context.managed(self.name), **self._servers.replicas(self._context)}
        new = [replica for replica in listed if replica not in self.replicas]
        self._remove_unlisted(listed)
        self.replicas.put({**listed, **self.replicas.kept()})
        for replica in new:
            self.pool.put(replica, listed[replica], relaunch=False)
        self._read_files()
        self.rules.renew(self._context, self.queue)
        return [replica for replica in new if listed[replica].model.preload]

    def running(self) -> Sequence[RunningEngine]:
        """The engines that are neither stopped nor failed."""
        states = self.queue.running().items()
        found = ((self.replicas[replica], state) for replica, state in states)
        return [each.running(state, self._url(each.backend)) for each, state in found]

    def _url(self, backend: str) -> str:
        upstream = self._context.upstreams.get(backend)
        return "" if upstream is None else upstream.pool.origin.url  # it may be retiring

    def quantizations(self) -> Mapping[str, str]:
        """The quantisation of each model's weights, if its files name it."""
        return {self.replicas[each].model_name: found for each, found in self._files.quantizations.items() if found}

    def explain_swap(self, target: str, running: Sequence[str] | None) -> SwapPlan:
        """Plan the swap that loads the model ``target`` beside the models ``running``, by default the running ones."""
        now = list(dict.fromkeys(each.model for each in self.running())) if running is None else running
        return explain_swap(self.rules.swapper, self.rules.facts, target, now)

    async def unload(self, replicas: Sequence[str], force: bool) -> None:
        """Refuse the requests that wait for ``replicas`` of a model, stop these, and wait until they have stopped.

        Streams move to other ready replicas. Other requests in flight may finish within ``server.drain_timeout``; with
        ``force`` they are cut off at once.
        """
        managed = self.replicas[replicas[0]]
        if force:
            await self.queue.unload(replicas, managed.model.stop_timeout)
            return
        self.queue.note_unload(replicas)
        within = self._context.config.server.drain_timeout
        ends = [end for replica in replicas if (end := self._retire(replica, within)) is not None]
        text = f"Model '{managed.model_name}' was unloaded while the request waited for it"
        self.queue.reject(replicas, lambda _: LoadFailed(text))
        await asyncio.gather(*map(asyncio.shield, ends))

    def release_idle(self) -> Sequence[str]:
        """Put replicas to sleep, or stop them, that have been idle for their ``ttl``.

        Returns the replicas to load again because these have left the host empty.
        """
        kept = self.replicas.kept()
        ttls = {replica: managed.model.ttl for replica, managed in kept.items()}
        for replica in self._idle.due(self.pool.states(), self.queue.in_flight, ttls, self.queue.now()):
            self.pool.sleep_or_stop(replica)
            self._has_released |= self.replicas[replica].model.preload != "again"
        states = {*self.pool.states().values()} - {*AT_REST, ReplicaState.SLEEPING}
        if not self._has_released or ReplicaState.STOPPING in states:
            return ()
        self._has_released = False
        return [replica for replica, managed in kept.items() if not states and managed.model.preload == "again"]

    def rest(self, replicas: Sequence[str]) -> None:
        """Put those of ``replicas`` to sleep, or stop them, that are ready and serve no request."""
        for replica in replicas:
            if self.pool.engines[replica].shown is ReplicaState.READY and not self.queue.in_flight(replica):
                self.pool.sleep_or_stop(replica)

    async def close(self, error: RequestError) -> None:
        """Refuse the waiting requests with ``error`` and stop every engine."""
        self._files.close()
        self._servers.close()
        await self.queue.close(error)
        await self.pool.close()

    # --- changes of the configuration

    def prepare(self, context: HostContext) -> HostChange:
        """Prepare a change to the configuration of ``context``. Raises ``ConfigError``."""
        if context.config.host_settings(self.name).launcher != self._context.config.host_settings(self.name).launcher:
            problem, remedy = "engines of its earlier launcher are still stopping", "try again when they have stopped"
            raise ConfigError(problem, key=f"hosts.{self.name}.launcher", remedy=remedy)
        managed = {**context.managed(self.name), **self._servers.replicas(context)}
        return self.rules.prepare(context, managed)

    def retire_removed(self, change: HostChange, within: float) -> Mapping[str, asyncio.Task[None]]:
        """Retire the replicas that the change removes: drain them for at most ``within`` seconds, then stop them.

        Returns the task of each retirement, by backend.
        """
        for replica in [each for each in self.replicas.kept() if each not in change.managed]:
            self._retire_and_remove(replica, within)
        return {self.replicas[replica].backend: task for replica, task in self.replicas.retiring.items()}

    def put_replicas(
        self, change: HostChange, relaunched: Collection[str], retiring: Mapping[str, asyncio.Task[None]], within: float
    ) -> None:
        """Add and update replicas. Engines of the models ``relaunched`` are retired as in ``retire_removed``.

        ``retiring``: the results of ``retire_removed`` of all hosts.
        """
        before, known, self._context = self._context, dict(self.replicas), change.context
        self._publisher.context = change.context
        self._servers.reconfigure(change.context)
        self.pool.reconfigure(change.context.config.host_settings(self.name))
        new_checks = before.config.checks != change.context.config.checks
        restored = [replica for replica in change.managed if self.replicas.retiring.pop(replica, None) is not None]
        self.replicas.put(change.managed)
        for replica, managed in change.managed.items():
            changed = managed.server is None and managed.model_name in relaunched
            relaunch = replica in restored or (replica in known and changed)
            self.pool.put(replica, managed, relaunch=relaunch, after=retiring.get(managed.backend))
            if relaunch:
                self._retire(replica, within)
            elif new_checks or not managed.probed_as(known.get(replica, managed)):
                self._restart_probes(replica)
        self._read_files()

    def put_rules(self, change: HostChange) -> None:
        """Give the scheduler its new rules."""
        self.rules.put(change, self.queue)

    def reject_removed(self) -> None:
        """Refuse the requests that wait for removed replicas; the relay may route them to another host."""
        self.queue.reject(self.replicas.retiring, self._removed_error)

    def _restart_probes(self, replica: str) -> None:
        if self.pool.engines[replica].shown is ReplicaState.READY:
            self._probe(replica)

    def _remove_unlisted(self, listed: Collection[str]) -> None:
        """Remove the kept replicas that servers list no more, unless their models are still loaded."""
        states = self.pool.states()
        for replica in [each for each in self.replicas.kept() if each not in listed and states[each] in AT_REST]:
            self.queue.reject([replica], self._removed_error)
            self._remove(replica)

    def _removed_error(self, replica: str) -> RequestError:
        model = self.replicas[replica].model_name
        if model not in self._context.config.models and self.replicas[replica].server is None:
            return ModelNotFound(model)
        return ReplicaLost(replica)

    # --- retirements: replicas leave service, for a while or for good

    def _retire(self, replica: str, within: float) -> asyncio.Task[None] | None:
        """Drain the engine of ``replica`` for at most ``within`` seconds, then stop it.

        Returns the task of its retirement; ``None`` if it does not run.
        """
        end = None
        if self.pool.engines[replica].shown not in AT_REST:
            self._leave_service(replica)
            end = self.queue.retire(replica, within)
        self._publisher.show(replica, self.pool.engines[replica].shown)
        return end

    def _retire_and_remove(self, replica: str, within: float) -> None:
        """Retire a replica, and remove it when its engine has stopped, unless the configuration restores it before."""
        self._publisher.stop_probing(self.replicas[replica])
        self._leave_service(replica)
        self.replicas.retiring[replica] = asyncio.ensure_future(self._remove_later(replica, within))

    def _leave_service(self, replica: str) -> None:
        """Send no more requests to ``replica``, and move its streams away."""
        self.pool.retire(replica)
        self._drains.retire(replica, LoadFailed(f"The engine of '{replica}' is being stopped; connect again"))

    async def _remove_later(self, replica: str, within: float) -> None:
        await self.queue.retire(replica, within)
        if self.replicas.retiring.get(replica) is asyncio.current_task():  # else the configuration has restored it
            self._remove(replica)
            self.rules.note_removed(self._context)

    def _remove(self, replica: str) -> None:
        """Remove a replica whose engine is at rest."""
        self.replicas.remove(replica)
        self.pool.remove(replica)
        self._publisher.remove(replica)

    # --- events of the queue

    def served(self, replica: str, caller: str | None, keep_alive: float | None) -> None:
        self._idle.used(replica, self.queue.now(), caller, keep_alive)

    def stopping(self, replica: str) -> None:
        self._drains.cut_off(replica, "the gateway stops the engine")

    def unloaded(self, replica: str) -> None:
        managed = self.replicas[replica]
        if managed.server is not None:
            managed.server.note_unloaded(managed.model_name)

    def vacate(self, replica: str) -> None:
        self._drains.vacate(replica)

    # --- events of the engines

    def _note_state(self, replica: str, state: ReplicaState) -> None:
        managed, engine = self.replicas[replica], self.pool.engines[replica]
        if replica not in self.replicas.retiring:
            if state is ReplicaState.READY:
                self._publisher.ready(replica, managed, engine)
            else:
                self._publisher.not_ready(replica, managed, state, engine)
            if state is ReplicaState.FAILED and engine.is_lost:
                self._drains.cut_off(replica, engine.problem)
        self._publisher.state(replica, state)

    def _note_examined(self, replica: str) -> None:
        if replica not in self.replicas.retiring:
            managed = self.replicas[replica]
            if managed.server is None:
                limit = managed.model.concurrency or self.pool.reported.get(replica, 0)
                self._context.fleet.load(managed.backend).slots = limit
            self._probe(replica, is_healthy=True)

    def _probe(self, replica: str, *, is_healthy: bool = False) -> None:
        engine, in_flight = self.pool.engines[replica], partial(self.queue.in_flight, replica)
        self._publisher.probe(self.replicas[replica], engine, in_flight, is_healthy=is_healthy)

    def _read_files(self) -> None:
        self._files.follow(self.replicas.kept(), self._servers.estimates())

    def _note_facts(self, replica: str, facts: ModelFacts) -> None:
        managed = self.replicas[replica]
        if self.pool.engines[replica].shown is not ReplicaState.READY:  # its engine knows better
            self._context.fleet.set_models(managed.backend, {managed.model_name: facts.capabilities})

    def _note_found(self, replica: str, process: EngineProcess) -> None:
        if replica in self.replicas.kept():
            self.pool.found(replica, process)
