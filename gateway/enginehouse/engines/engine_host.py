"""One host: its engines, its scheduler, and what the rest of the house is told of them."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from enginehouse.config.managed import driver_of, managed_backends
from enginehouse.config.schema import Backend, Config
from enginehouse.config.schema import Host as HostSettings
from enginehouse.domain.errors import ReplicaGone, RequestError
from enginehouse.domain.replica import ReplicaState, replica_name
from enginehouse.domain.ticket import SwapDone, Ticket
from enginehouse.engines.health_path import with_health_path
from enginehouse.engines.host_engines import HostEngines, Managed
from enginehouse.engines.idle import IdleKeeper
from enginehouse.engines.ports import Ports
from enginehouse.engines.prober import Prober
from enginehouse.engines.state_file import StateFile
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.drivers import Driver
from enginehouse.interfaces.launchers import Launcher
from enginehouse.interfaces.schedulers import Scheduler, SchedulingLimits
from enginehouse.interfaces.swappers import HostFacts, Swapper, SwapPlan
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.explain import explain_swap
from enginehouse.scheduling.facts import host_facts
from enginehouse.scheduling.host import Host
from enginehouse.telemetry.listeners import Observers, tell
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_WAKE_S = 5.0
"""What a load is supposed to take until one was seen."""
_CLIENT_S = 60.0
"""The time limit of what an engine is asked while it starts, sleeps or wakes."""
_wishes = itertools.count(1)


class Means(NamedTuple):
    """What every host works with. ``make_swapper`` prepares what it makes; ``make_launcher`` is told where logs go."""

    config: Config
    fleet: Fleet
    upstreams: Mapping[str, Upstream]
    drivers: Mapping[str, Driver]
    observers: Observers
    make_scheduler: Callable[[], Scheduler]
    make_swapper: Callable[[HostFacts], Swapper]
    make_launcher: Callable[[str, Path], Launcher]


class RunningEngine(msgspec.Struct, frozen=True):
    """A launched engine, as ``/running`` tells of it."""

    model: str
    backend: str
    state: ReplicaState


class EngineHost:
    """Brings the engines of one host and its scheduler together, and tells the fleet and observers of their states."""

    def __init__(self, name: str, means: Means, ports: Ports, state_file: StateFile, prober: Prober) -> None:
        config = means.config
        self._means = means
        self._prober = prober
        self._managed = {
            replica_name(model_name, backend): Managed(
                backend, model_name, model, with_health_path(means.drivers[driver_of(model)], model.health_path)
            )
            for model_name, model in config.models.items()
            if model.host == name
            for backend in managed_backends(model_name, model)
        }
        self._idle = IdleKeeper({replica: managed.model.ttl for replica, managed in self._managed.items()})
        self._starting_since: dict[str, float] = {}
        self._wake_s: dict[str, float] = {}
        self._on_replica_state = means.observers.listeners("replica_state")
        self._on_swap_started = means.observers.listeners("swap_started")
        self._on_swap_done = means.observers.listeners("swap_done")
        self._on_queue_changed = means.observers.listeners("queue_changed")
        self.engines = HostEngines(
            name,
            self._managed,
            launcher=means.make_launcher(name, state_file.logs),
            ports=ports,
            connect=self._connect,
            state_file=state_file,
            on_state=self._note_state,
            on_gone=self._note_gone,
        )
        self._facts = msgspec.structs.replace(host_facts(config, name), measured=self.engines.measured)
        self._swapper = means.make_swapper(self._facts)
        scheduler = means.make_scheduler()
        self.queue = Host(name, scheduler, self.engines, self)
        scheduler.prepare(self.queue, self._swapper, self._facts, _limits(config, name))

    @property
    def backends(self) -> Sequence[str]:
        """The backends that are launched here."""
        return [managed.backend for managed in self._managed.values()]

    def running(self) -> Sequence[RunningEngine]:
        """Every engine that is not at rest."""
        return [
            RunningEngine(self._managed[replica].model_name, self._managed[replica].backend, state)
            for replica, state in self.queue.running().items()
        ]

    def logs(self) -> Mapping[str, LogRing]:
        """What each backend's engine printed."""
        return {supervisor.name: supervisor.log for supervisor in self.engines.supervisors.values()}

    def explain_swap(self, target: str, running: Sequence[str] | None) -> SwapPlan:
        """What would be stopped so that the model ``target`` can run where ``running`` do, or what runs now."""
        now = list(dict.fromkeys(each.model for each in self.running())) if running is None else running
        return explain_swap(self._swapper, self._facts, target, now)

    def replicas(self, model: str) -> Sequence[str]:
        """The replicas of ``model`` here, the first one first."""
        return [replica for replica, managed in self._managed.items() if managed.model_name == model]

    async def load(self, replica: str) -> None:
        """Have a replica made ready, in its turn, and wait for that. Raises ``RequestError`` when it does not work."""
        try:
            await self._load(replica)
        except ReplicaGone:
            await self._load(replica)

    async def _load(self, replica: str) -> None:
        wish = _Wish()
        ticket = Ticket(id=f"load/{next(_wishes)}", replica=replica, arrived=self.queue.now())
        self.queue.submit(ticket, wish)
        try:
            await wish.outcome
        finally:
            if wish.held:
                self.queue.served(replica)
            else:
                self.queue.cancel(ticket)

    async def preload(self, replica: str) -> None:
        """``load``, for which nobody waits."""
        try:
            await self.load(replica)
        except RequestError as error:
            _log.warning("%s could not be preloaded: %s", replica, error)

    async def unload(self, model: str, timeout: float | None) -> None:
        """Stop the replicas of a model, within ``timeout`` seconds or else its own limit, and wait for that."""
        replicas = self.replicas(model)
        limit = self._managed[replicas[0]].model.stop_timeout if timeout is None else timeout
        await self.queue.unload(replicas, limit)

    def rest_idle(self) -> None:
        """Let go of what had nothing to do for its ``ttl``."""
        load = self._means.fleet.load
        in_flight = {replica: load(managed.backend).pending for replica, managed in self._managed.items()}
        for replica in self._idle.due(self.engines.states(), in_flight, self.queue.now()):
            self.engines.rest(replica)

    async def close(self, error: RequestError) -> None:
        """Refuse whatever waits with ``error``, and stop every engine."""
        await self.queue.close(error)
        await self.engines.close()

    # --- from the scheduler's run loop

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        """Tell of a swap."""
        tell(self._on_swap_started, target, evict)

    def swap_done(self, done: SwapDone) -> None:
        """Tell of its end."""
        tell(self._on_swap_done, done)

    def served(self, replica: str) -> None:
        """A request has ended: the replica is not idle."""
        self._idle.used(replica, self.queue.now())

    def queue_changed(self) -> None:
        """Tell that who waits may have changed."""
        if self._on_queue_changed:
            tell(self._on_queue_changed)

    # --- from the engines

    def _connect(self, backend: str, address: str) -> Client:
        upstream = Upstream(backend, Backend(url=address), self._means.config.timeouts)
        return Client(upstream, _CLIENT_S)

    def _note_state(self, replica: str, state: ReplicaState) -> None:
        now = asyncio.get_running_loop().time()
        if state is ReplicaState.STARTING:
            self._starting_since[replica] = now
        if state is ReplicaState.READY:
            self._wake_s[replica] = now - self._starting_since.get(replica, now)
            self._open(replica)
        else:
            self._shut(replica, state)
        tell(self._on_replica_state, replica, state)

    def _open(self, replica: str) -> None:
        means, managed = self._means, self._managed[replica]
        upstream = means.upstreams[managed.backend]
        upstream.locate(self.engines.supervisors[replica].address or "")
        means.fleet.set_state(replica, ReplicaState.READY)
        means.fleet.succeeded(managed.backend)
        self._prober.add(managed.backend, managed.driver, Client(upstream, means.config.checks.timeout))

    def _shut(self, replica: str, state: ReplicaState) -> None:
        means, backend = self._means, self._managed[replica].backend
        self._prober.remove(backend)
        means.upstreams[backend].locate("")
        problem = self.engines.supervisors[replica].problem
        means.fleet.set_state(replica, state, self._wake_s.get(replica, _WAKE_S), problem)

    def _note_gone(self, replica: str) -> None:
        self.queue.went_away(replica)


class _Wish:
    """Waits for a replica that somebody wants loaded, not for a request."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.held = False

    def granted(self) -> bool:
        if self.outcome.done():
            return False
        self.held = True
        self.outcome.set_result(None)
        return True

    def refused(self, error: Exception) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


def _limits(config: Config, host: str) -> SchedulingLimits:
    scheduling = config.scheduling
    return SchedulingLimits(
        queue_timeout=scheduling.queue_timeout,
        max_queue=scheduling.max_queue,
        min_residency=scheduling.min_residency,
        max_wait=scheduling.max_wait,
        max_loads=config.hosts.get(host, HostSettings()).max_loads,
    )
