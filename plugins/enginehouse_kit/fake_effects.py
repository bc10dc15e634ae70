"""A fake host for tests of schedulers, without engines and clock, which checks every rule of ``Effects``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from enginehouse import ReplicaState, Scheduler, Swapper
from enginehouse.errors import LoadFailed
from enginehouse.routing_facts import AT_REST
from enginehouse.scheduling.guarded_swapper import GuardedSwapper
from enginehouse.tickets import HostedReplica, HostFacts, SchedulingLimits, SwapDone, SwapId, Ticket
from enginehouse_kit.expect import expect


class OneAtATime(Swapper):
    """Evicts every other replica."""

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        return [replica for replica in running if replica != target]


class AtMost(OneAtATime):
    """Lets ``most`` replicas run at once and evicts the least recently used ones."""

    def __init__(self, most: int) -> None:
        self.most = most

    def eviction_for(self, target: str, running: Sequence[str]) -> Sequence[str]:
        others = super().eviction_for(target, running)
        return others[: max(0, len(others) - self.most + 1)]


class FakeSwap(NamedTuple):
    """A swap that the scheduler started."""

    id: SwapId
    target: str
    evict: tuple[str, ...]


class FakeEffects:
    """A fake host for one scheduler. A test causes events; the host records and checks the scheduler's decisions.

    ::

        host = FakeEffects(my_scheduler, ["a", "b"], ready=["a"])
        first, second = host.request("a"), host.request("b")
        host.serve_done("a")
        host.swap_done("b")
        assert host.granted == [first, second]

    ``replicas`` has names, or a ``HostedReplica`` for a replica with a priority, a limit or a pin. ``limits`` are
    fields of ``SchedulingLimits``. The scheduler gets the ``swapper`` guarded and prepared, as in a gateway. The states
    of replicas change at the end of a swap or an unload. Time passes only in ``pass_time``.

    Raises ``AssertionError`` as soon as the scheduler breaks a rule: it resolves a ticket twice, grants to a replica
    that is not ready, is stopping or is full, or starts a swap that collides with another or evicts a busy or pinned
    replica.

    ``log`` has every decision in order, as text, ``swaps`` the swaps in flight, ``stopping`` the unloads in progress,
    and ``vacated`` the replicas whose streams the scheduler wanted to move. For an event without a method here, call
    ``scheduler`` directly.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        replicas: Iterable[str | HostedReplica],
        *,
        ready: Iterable[str] = (),
        swapper: Swapper | None = None,
        **limits: Any,
    ) -> None:
        self.facts = _facts(replicas)
        self.states = dict.fromkeys(self.facts.replicas, ReplicaState.STOPPED)
        self.states.update((replica, ReplicaState.READY) for replica in ready)
        self.limits = SchedulingLimits(**limits)
        self.time = 0.0
        self.log: list[str] = []
        self.granted: list[Ticket] = []
        self.refused: dict[Ticket, Exception] = {}
        self.waiting: list[Ticket] = []
        self.swaps: dict[SwapId, FakeSwap] = {}
        self.cancelled: list[SwapId] = []
        self.stopping: list[str] = []
        self.in_flight: Counter[str] = Counter()
        self.vacated: set[str] = set()
        self.scheduler = scheduler
        self._disconnected: set[Ticket] = set()
        self._tickets = 0
        self._swaps = 0
        scheduler.prepare(self, _guarded(swapper, self.facts), self.facts, self.limits)

    # --- events

    def request(self, replica: str, priority: int = 0) -> Ticket:
        """A request for ``replica`` arrives."""
        self._tickets += 1
        ticket = Ticket(id=f"{replica}-{self._tickets}", replica=replica, priority=priority, arrived=self.time)
        self.waiting.append(ticket)
        self.scheduler.on_request(ticket)
        return ticket

    def disconnect(self, ticket: Ticket) -> None:
        """The client of a waiting ticket leaves, and the scheduler does not know it yet: a grant will fail."""
        self._disconnected.add(ticket)

    def cancel(self, ticket: Ticket) -> None:
        """The client of a ticket leaves."""
        if ticket in self.waiting:
            self.waiting.remove(ticket)
        self.scheduler.on_cancel(ticket)

    def swap_done(self, target: str, error: Exception | None = None) -> None:
        """The oldest swap of ``target`` in flight ends."""
        swap = next(swap for swap in self.swaps.values() if swap.target == target)
        del self.swaps[swap.id]
        self.states.update((replica, ReplicaState.STOPPED) for replica in swap.evict)
        self.states[target] = ReplicaState.READY if error is None else ReplicaState.FAILED
        self.scheduler.on_swap_done(SwapDone(swap=swap.id, target=target, error=error))

    def serve_done(self, replica: str) -> None:
        """A granted request of ``replica`` ends."""
        expect(self.in_flight[replica] > 0, f"nothing is in flight at '{replica}'")
        self.in_flight[replica] -= 1
        self.scheduler.on_serve_done(replica)

    def crash(self, replica: str) -> None:
        """The engine of ``replica`` exits by itself, which also ends its unload. Requests in flight do not end here."""
        if replica in self.stopping:
            self.stopping.remove(replica)
        self.states[replica] = ReplicaState.FAILED
        self.scheduler.on_stopped(replica)

    def unload(self, *replicas: str, timeout: float = 10.0) -> None:
        """An operator unloads ``replicas``."""
        self.scheduler.on_unload(replicas, timeout)

    def stop_done(self, replica: str) -> None:
        """The unload of ``replica`` ends."""
        self.stopping.remove(replica)
        self.states[replica] = ReplicaState.STOPPED
        self.scheduler.on_stopped(replica)

    def reconfigure(
        self, replicas: Iterable[str | HostedReplica], *, swapper: Swapper | None = None, **limits: Any
    ) -> None:
        """The configuration changes. ``replicas`` are all replicas from now on, known and new ones."""
        self.facts = _facts(replicas)
        self.states = {replica: self.states.get(replica, ReplicaState.STOPPED) for replica in self.facts.replicas}
        self.limits = SchedulingLimits(**limits)
        self.scheduler.reconfigure(_guarded(swapper, self.facts), self.facts, self.limits)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with one tick at its end."""
        self.time += seconds
        self.scheduler.on_tick(self.time)

    def shutdown(self, error: Exception) -> None:
        """The gateway stops."""
        self.scheduler.on_shutdown(error)

    def settle(self) -> None:
        """End all swaps, unloads and requests without errors, and let time pass until no ticket waits.

        Raises ``AssertionError`` if tickets wait forever.
        """
        for _ in range(10 * (1 + len(self.waiting))):
            for replica in list(self.stopping):
                self.stop_done(replica)
            for swap in list(self.swaps.values()):
                self.swap_done(swap.target, LoadFailed("cancelled") if swap.id in self.cancelled else None)
            for replica in list(self.in_flight.elements()):
                self.serve_done(replica)
            if not (self.waiting or self.swaps or self.stopping or self.in_flight.total()):
                return
            self.pass_time(max(1.0, self.limits.min_residency))
        left = [ticket.id for ticket in self.waiting]
        raise AssertionError(f"with everything ended and time passing, {left} must not wait for ever")

    # --- effects

    def replica_state(self, replica: str) -> ReplicaState | None:
        return self.states.get(replica)

    def running(self) -> Mapping[str, ReplicaState]:
        return {replica: state for replica, state in self.states.items() if state not in AT_REST}

    def start_swap(self, target: str, evict: Sequence[str]) -> SwapId:
        self._check_swap(target, evict)
        self._swaps += 1
        swap = FakeSwap(SwapId(self._swaps), target, tuple(evict))
        self.swaps[swap.id] = swap
        self.log.append(f"swap {target}" + "".join(f" -{replica}" for replica in evict))
        return swap.id

    def cancel_swap(self, swap: SwapId) -> None:
        """Note the cancellation. The test ends the swap."""
        expect(swap in self.swaps, f"swap {swap} cannot be cancelled, it is not in flight")
        expect(swap not in self.cancelled, f"swap {swap} was cancelled already")
        self.cancelled.append(swap)
        self.log.append(f"cancel {self.swaps[swap].target}")

    def grant(self, ticket: Ticket) -> bool:
        self._resolve("grant", ticket)
        replica = ticket.replica
        ready = self.states.get(replica) is ReplicaState.READY
        expect(ready, f"'{ticket.id}' was granted, but '{replica}' is not ready")
        stops = replica in self.stopping or any(replica in swap.evict for swap in self.swaps.values())
        expect(not stops, f"'{ticket.id}' was granted, but '{replica}' is stopping")
        if ticket in self._disconnected:
            return False
        most = self.facts.replicas[replica].concurrency
        expect(not most or self.in_flight[replica] < most, f"'{replica}' takes no more than {most} at once")
        self.in_flight[replica] += 1
        self.granted.append(ticket)
        return True

    def refuse(self, ticket: Ticket, error: Exception) -> None:
        self._resolve("refuse", ticket)
        self.refused[ticket] = error

    def stop(self, replicas: Sequence[str], timeout: float) -> None:
        """Begin to unload. The test ends each unload."""
        for replica in replicas:
            expect(replica in self.states, f"'{replica}' cannot be stopped, it is not known")
            if replica not in self.stopping:
                self.stopping.append(replica)
        self.log.append(f"stop {' '.join(replicas)} within {timeout:g}")

    def vacate(self, replicas: Sequence[str]) -> None:
        """Note the order. The test ends the requests that move."""
        for replica in replicas:
            expect(replica in self.running(), f"'{replica}' cannot be vacated, it does not run")
        self.vacated.update(replicas)

    def now(self) -> float:
        return self.time

    # --- rules

    def _resolve(self, what: str, ticket: Ticket) -> None:
        expect(ticket in self.waiting, f"{what} '{ticket.id}': it does not wait, or was answered already")
        self.waiting.remove(ticket)
        self.log.append(f"{what} {ticket.id}")

    def _check_swap(self, target: str, evict: Sequence[str]) -> None:
        swap = f"the swap of '{target}' for {list(evict)}"
        expect(target in self.states, f"{swap}: the target is not known")
        expect(self.states[target] is not ReplicaState.READY, f"{swap}: the target is ready")
        expect(target not in self.stopping, f"{swap}: the target is being unloaded")
        touched = {target, *evict}
        for other in self.swaps.values():
            shared = touched & {other.target, *other.evict}
            expect(not shared, f"{swap} collides with that of '{other.target}' for {list(other.evict)}: {shared}")
        for replica in evict:
            expect(replica in self.running(), f"{swap}: '{replica}' does not run")
            expect(not self.in_flight[replica], f"{swap}: '{replica}' is busy")
            expect(not self.facts.replicas[replica].pin, f"{swap}: '{replica}' is pinned")


def _guarded(swapper: Swapper | None, facts: HostFacts) -> Swapper:
    """``swapper``, by default ``OneAtATime``, guarded and prepared as the gateway does it."""
    swapper = swapper or OneAtATime()
    guarded = GuardedSwapper(swapper, type=type(swapper).__name__, plugin="tests")
    guarded.prepare(facts)
    return guarded


def _facts(replicas: Iterable[str | HostedReplica]) -> HostFacts:
    hosted = [HostedReplica(replica=each, model=each) if isinstance(each, str) else each for each in replicas]
    return HostFacts(name="local", replicas={each.replica: each for each in hosted})
