"""Reports what happens to one host's engines to the rest of the gateway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from enginehouse.config.schema import BackendSettings
from enginehouse.domain.errors import NotFound
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.engines.engine import Engine, EngineListener
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.probing import Prober
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.relay.moves.drains import Drains
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.host_queue import HostQueue
from enginehouse.telemetry.observers import notify

_CLIENT_S = 60.0
"""The time limit of a request to an engine that starts, falls asleep or wakes."""


class EngineReports(EngineListener):
    """Keeps the fleet, the relay's upstreams, the prober and observers up to date, and tells ``queue`` of exits.

    ``context`` may be replaced. ``engines``: those of the host, by replica; live.
    """

    queue: HostQueue

    def __init__(self, context: HostContext, engines: Mapping[str, Engine], prober: Prober, drains: Drains) -> None:
        self.context = context
        self._engines = engines
        self._prober = prober
        self._drains = drains
        self._on_replica_state = context.observers.callbacks("replica_state")

    def client(self, backend: str, address: str) -> EngineClient:
        """HTTP to an engine that the relay does not use yet, or to a server elsewhere."""
        context = self.context
        if backend in context.config.backends:
            return Client(context.upstreams[backend], _CLIENT_S)
        upstream = Upstream(backend, BackendSettings(url=address), context.config.timeouts, context.outside)
        return Client(upstream, _CLIENT_S)

    def running(self) -> Sequence[str]:
        return [replica for replica, engine in self._engines.items() if engine.shown not in AT_REST]

    def engine_changed(self, engine: Engine) -> None:
        managed, state = engine.managed, engine.shown
        if engine.removal is None:
            if managed.server is None:
                self._find(engine)
            kept = 0 if state is ReplicaState.READY or engine.elsewhere else engine.cache.estimated
            self.show(engine, engine.problem, kept)
            if managed.server is None and state is ReplicaState.READY:
                self.context.fleet.succeeded(managed.backend)
            if state is ReplicaState.FAILED and engine.is_lost:
                self._drains.cut_off(engine.replica, engine.problem)
        notify(self._on_replica_state, engine.replica, state)

    def engine_examined(self, engine: Engine) -> None:
        if engine.removal is None:
            managed = engine.managed
            if managed.server is None:
                limit = managed.model.concurrency or engine.launches.learned.reported.get(engine.replica, 0)
                self.context.fleet.load(managed.backend).slots = limit
            self.probe(engine, is_healthy=True)

    def engine_exited(self, engine: Engine) -> None:
        self.queue.exited(engine.replica)

    def show(self, engine: Engine, problem: str = "", cache_kept: int = 0) -> None:
        """Show routing the state of a replica. ``cache_kept``: the tokens that it has again after its launch."""
        wake_s = 0.0 if engine.shown is ReplicaState.READY else engine.wake_s
        with suppress(NotFound):  # a server elsewhere no longer lists its model
            self.context.fleet.set_state(engine.replica, engine.shown, wake_s, problem, cache_kept=cache_kept)

    def probe(self, engine: Engine, *, is_healthy: bool = False) -> None:
        """Probe a ready engine by the current configuration.

        ``is_healthy``: it has just been found healthy. A server elsewhere is probed, whatever it has loaded.
        """
        managed, checks = engine.managed, self.context.config.checks
        if managed.server is not None or engine.run is None:
            return
        client = Client(self.context.upstreams[managed.backend], checks.timeout)
        self._prober.add(managed.backend, managed.driver, client, managed.model.health_path, is_healthy=is_healthy)

    def stop_probing(self, engine: Engine) -> None:
        """Stop the probes of a backend that is being removed. Its requests in flight continue."""
        if engine.managed.server is None:
            self._prober.remove(engine.managed.backend)

    def _find(self, engine: Engine) -> None:
        """Have the relay, and the prober, find a ready engine, and no other one."""
        backend, run = engine.managed.backend, engine.run
        upstream = self.context.upstreams[backend]
        if engine.shown is ReplicaState.READY and run is not None:
            upstream.locate(run.process.address)
            self.context.fleet.locate(backend, run.place.node, run.place.unit)
            return
        self._prober.remove(backend)
        if upstream.pool.origin.host:
            upstream.locate("")
