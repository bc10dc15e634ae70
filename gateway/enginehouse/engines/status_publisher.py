"""Reports the states of one host's engines to the rest of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from enginehouse.config.schema import BackendSettings
from enginehouse.domain.errors import NotFound
from enginehouse.domain.replica import ASSUMED_LOAD_S, ReplicaState
from enginehouse.engines.engine import Engine
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.host_replicas import ManagedReplica
from enginehouse.engines.probing.hang_watch import HangWatch
from enginehouse.engines.probing.prober import Prober
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.telemetry.observers import notify

_CLIENT_S = 60.0
"""The time limit of a request to an engine that starts, falls asleep or wakes."""


class StatusPublisher:
    """Keeps the fleet, the relay's upstreams, the prober and observers up to date. ``context`` may be replaced."""

    def __init__(self, context: HostContext, prober: Prober) -> None:
        self.context = context
        self._prober = prober
        self._starting_since: dict[str, float] = {}
        self._wake_s: dict[str, float] = {}
        self._on_replica_state = context.observers.callbacks("replica_state")

    def client(self, backend: str, address: str) -> Client:
        """HTTP to an engine that the relay does not use yet, or to a server elsewhere."""
        if backend in self.context.config.backends:
            return Client(self.context.upstreams[backend], _CLIENT_S)
        context = self.context
        upstream = Upstream(backend, BackendSettings(url=address), context.config.timeouts, context.outside)
        return Client(upstream, _CLIENT_S)

    def state(self, replica: str, state: ReplicaState) -> None:
        """Report a new state to observers."""
        now = asyncio.get_running_loop().time()
        if state is ReplicaState.STARTING:  # again after it has waited for a place
            self._starting_since[replica] = now
        if state is ReplicaState.READY:
            self._wake_s[replica] = now - self._starting_since.get(replica, now)
        notify(self._on_replica_state, replica, state)

    def ready(self, replica: str, managed: ManagedReplica, engine: Engine) -> None:
        """Let requests go to a ready engine."""
        if managed.server is not None:
            self.show(replica, ReplicaState.READY)
            return
        self.context.upstreams[managed.backend].locate(engine.address or "")
        if (place := engine.place) is not None:
            self.context.fleet.locate(managed.backend, place.node, place.unit)
        self.context.fleet.set_state(replica, ReplicaState.READY)
        self.context.fleet.succeeded(managed.backend)

    def not_ready(self, replica: str, managed: ManagedReplica, state: ReplicaState, engine: Engine) -> None:
        """Keep requests from an engine that is not ready."""
        if managed.server is None:
            self._prober.remove(managed.backend)
            self.context.upstreams[managed.backend].locate("")
        self.show(replica, state, engine.problem, cache_kept=engine.cache_kept)

    def show(self, replica: str, state: ReplicaState, problem: str = "", *, cache_kept: bool = False) -> None:
        """Show routing the state of a replica. ``cache_kept``: it gets its prefix cache back when it is launched."""
        wake_s = 0.0 if state is ReplicaState.READY else self._wake_s.get(replica, ASSUMED_LOAD_S)
        with suppress(NotFound):  # a server elsewhere no longer lists its model
            self.context.fleet.set_state(replica, state, wake_s, problem, cache_kept=cache_kept)

    def probe(
        self,
        managed: ManagedReplica,
        engine: Engine,
        in_flight: Callable[[], int],
        *,
        is_healthy: bool = False,
    ) -> None:
        """Probe a ready engine by the current configuration, and end it if it hangs.

        ``in_flight``: the number of its requests. ``is_healthy``: it has just been found healthy.
        """
        if managed.server is not None:  # the backend is probed, whatever it has loaded
            return
        client = Client(self.context.upstreams[managed.backend], self.context.config.checks.timeout)
        path = managed.model.health_path
        watch = HangWatch(self.context.config.checks, engine.processor_seconds, in_flight, engine.end_hung)
        driver = managed.driver
        self._prober.add(managed.backend, driver, client, path, is_healthy=is_healthy, hang_watch=watch)

    def stop_probing(self, managed: ManagedReplica) -> None:
        """Stop the probes of a backend that is being removed. Its requests in flight continue."""
        if managed.server is None:
            self._prober.remove(managed.backend)

    def remove(self, replica: str) -> None:
        """Drop the times of a removed replica."""
        self._wake_s.pop(replica, None)
        self._starting_since.pop(replica, None)
