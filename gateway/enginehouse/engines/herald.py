"""What the rest of the house is told of the engines of one host."""

from __future__ import annotations

import asyncio

from enginehouse.config.schema import Backend
from enginehouse.domain.replica import ReplicaState
from enginehouse.domain.ticket import SwapDone
from enginehouse.engines.host_engines import Managed
from enginehouse.engines.means import Means
from enginehouse.engines.prober import Prober
from enginehouse.engines.supervisor import Supervisor
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.telemetry.listeners import tell

_WAKE_S = 5.0
"""What a load is supposed to take until one was seen."""
_CLIENT_S = 60.0
"""The time limit of what an engine is asked while it starts, sleeps or wakes."""


class Herald:
    """Tells the fleet, the relay's upstreams, the prober and observers how engines are. ``means`` may be replaced."""

    def __init__(self, means: Means, prober: Prober) -> None:
        self.means = means
        self._prober = prober
        self._starting_since: dict[str, float] = {}
        self._wake_s: dict[str, float] = {}
        self._on_replica_state = means.observers.listeners("replica_state")
        self._on_swap_started = means.observers.listeners("swap_started")
        self._on_swap_done = means.observers.listeners("swap_done")
        self._on_queue_changed = means.observers.listeners("queue_changed")

    def client(self, backend: str, address: str) -> Client:
        """HTTP to an engine that nobody else knows of yet."""
        return Client(Upstream(backend, Backend(url=address), self.means.config.timeouts), _CLIENT_S)

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        """A swap began."""
        tell(self._on_swap_started, target, evict)

    def swap_done(self, done: SwapDone) -> None:
        """A swap ended."""
        tell(self._on_swap_done, done)

    def queue_changed(self) -> None:
        """Who waits may have changed."""
        if self._on_queue_changed:
            tell(self._on_queue_changed)

    def state(self, replica: str, state: ReplicaState) -> None:
        """A replica has another state, which concerns nobody but observers if it is on its way out."""
        now = asyncio.get_running_loop().time()
        if state is ReplicaState.STARTING:
            self._starting_since[replica] = now
        if state is ReplicaState.READY:
            self._wake_s[replica] = now - self._starting_since.get(replica, now)
        tell(self._on_replica_state, replica, state)

    def ready(self, replica: str, managed: Managed, supervisor: Supervisor) -> None:
        """The engine can take requests."""
        self.means.upstreams[managed.backend].locate(supervisor.address or "")
        self.means.fleet.set_state(replica, ReplicaState.READY)
        self.means.fleet.succeeded(managed.backend)
        self.probe(managed)

    def not_ready(self, replica: str, managed: Managed, state: ReplicaState, problem: str) -> None:
        """The engine can take none."""
        self._prober.remove(managed.backend)
        self.means.upstreams[managed.backend].locate("")
        self.show(replica, state, problem)

    def show(self, replica: str, state: ReplicaState, problem: str = "") -> None:
        """What routing knows of a replica that is not ready."""
        self.means.fleet.set_state(replica, state, self._wake_s.get(replica, _WAKE_S), problem)

    def probe(self, managed: Managed) -> None:
        """Have a ready engine probed, from now on with what is configured now."""
        client = Client(self.means.upstreams[managed.backend], self.means.config.checks.timeout)
        self._prober.add(managed.backend, managed.driver, client)

    def leave(self, managed: Managed) -> None:
        """The backend is not to be known any more; what it still serves goes on."""
        self._prober.remove(managed.backend)

    def forget(self, replica: str) -> None:
        """Its engine is gone for good."""
        self._wake_s.pop(replica, None)
        self._starting_since.pop(replica, None)
