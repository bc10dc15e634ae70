"""The conformance check of schedulers: random events on many hosts, with every decision checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any

from enginehouse import ReplicaState, Scheduler
from enginehouse.errors import LoadFailed, NotEnoughMemory, ReplicaLost, ShuttingDown
from enginehouse.tickets import CallerTurn, CallerTurns, HostedReplica, Phase, SwapDone, SwapId
from enginehouse_kit.expect import expect, expect_sequence, warn_if_slow
from enginehouse_kit.fake_effects import FakeEffects

_DAYS = 30
_EVENTS = 80
_UNKNOWN = "unknown@nowhere"
_LIMITS: list[dict[str, Any]] = [
    {},
    {"max_loads": 0, "min_residency": 3.0},
    {"max_queue": 4, "queue_timeout": 5.0},
    {"max_wait": 2.0, "min_residency": 1.0},
]


def check_scheduler(factory: Callable[[], Scheduler]) -> None:
    """Check a scheduler against the rules of its interface. Raises ``AssertionError``.

    Random events must never lead to a ticket resolved twice, or to a busy or pinned replica evicted. Besides:

    - waiting tickets keep waiting when the configuration changes, and ``waiting`` shows exactly them;
    - the end of an unknown swap changes nothing;
    - an unload refuses the tickets that wait for the replica and stops it;
    - a ticket of higher priority is granted first;
    - a shutdown refuses every waiting ticket with the given error;
    - no ticket waits forever;
    - the same events lead to the same decisions;
    - turns, if it makes them, are numbers that never change.
    """
    slow = warn_if_slow("a scheduler's event", lambda: _day(factory(), 0), calls=_EVENTS)
    for number in range(1 if slow else _DAYS):
        first, again = (_day(factory(), number) for _ in range(2))
        expect(first.log == again.log, "the same events must lead to the same decisions")
        first.settle()
        _check_waiting(first)
        expect(not first.waiting, "every waiting ticket must get an answer")
        _check_shutdown(again)
    _check_priority(factory())
    _check_turns(factory().shares)


def _day(scheduler: Scheduler, number: int) -> FakeEffects:
    """``_EVENTS`` random events. The host, its limits and the events depend on ``number`` only."""
    random = Random(number)
    limits = _LIMITS[number % len(_LIMITS)]
    host = FakeEffects(scheduler, _replicas(pinned=number % 3 == 0), ready=["d"], **limits)
    for _ in range(_EVENTS):
        random.choice(list(_possible(host, random)))()
        _check_waiting(host)
    return host


def _replicas(pinned: bool) -> Iterator[HostedReplica]:
    yield HostedReplica(replica="a", model="a", priority=5)
    yield HostedReplica(replica="b", model="b", concurrency=1)
    yield HostedReplica(replica="c", model="c")
    yield HostedReplica(replica="d", model="d", concurrency=2, pin=pinned)


def _possible(host: FakeEffects, random: Random) -> Iterator[Callable[[], object]]:
    """The events that may come next, requests more often than others."""
    replica = random.choice("abcd")
    for priority in (0, 0, 0, random.randint(-5, 5)):
        yield partial(host.request, replica, priority)
    yield partial(_check_unknown_replica, host)
    yield partial(_check_unknown_swap, host, replica)
    yield partial(host.pass_time, random.choice([0.5, 3.0]))
    yield partial(_check_unload, host, replica)
    yield partial(host.reconfigure, list(_replicas(random.random() < 0.3)), **random.choice(_LIMITS))
    if host.waiting:
        yield partial(host.cancel, random.choice(host.waiting))
        yield partial(host.disconnect, random.choice(host.waiting))
    for swap in host.swaps.values():
        yield partial(host.swap_done, swap.target)
        yield partial(host.swap_done, swap.target, LoadFailed("no such file"))
        yield partial(host.swap_done, swap.target, NotEnoughMemory("out of memory"))
    for served in host.in_flight.elements():
        yield partial(host.serve_done, served)
    for stopped in host.stopping:
        yield partial(host.stop_done, stopped)
    if host.states[replica] is ReplicaState.READY:
        yield partial(_check_crash, host, replica)


def _check_unknown_replica(host: FakeEffects) -> None:
    ticket = host.request(_UNKNOWN)
    expect(ticket in host.refused, "a request for a replica that the host does not have must be refused at once")


def _check_unknown_swap(host: FakeEffects, target: str) -> None:
    before = list(host.log)
    unknown = SwapDone(swap=SwapId(1_000_000), target=target, error=LoadFailed("too late"))
    host.scheduler.on_swap_done(unknown)
    expect(host.log == before, "the end of a swap that is not in flight must change nothing")


def _check_crash(host: FakeEffects, replica: str) -> None:
    is_moving = replica in host.stopping or any(swap.target == replica for swap in host.swaps.values())
    waited = [ticket for ticket in host.waiting if ticket.replica == replica]
    host.crash(replica)
    refused = all(isinstance(host.refused.get(ticket), ReplicaLost) for ticket in waited)
    expect(refused or is_moving, f"tickets of '{replica}', which exited by itself, must be refused with ReplicaLost")


def _check_unload(host: FakeEffects, replica: str) -> None:
    waited = [ticket for ticket in host.waiting if ticket.replica == replica]
    evicted = any(replica in swap.evict for swap in host.swaps.values())
    host.unload(replica)
    refused = all(ticket in host.refused for ticket in waited)
    expect(refused, f"tickets that wait for '{replica}', which is unloaded, must be refused")
    if host.states[replica] is ReplicaState.READY and not evicted:
        expect(replica in host.stopping, f"an unload must stop '{replica}' with Effects.stop")


def _check_priority(scheduler: Scheduler) -> None:
    host = FakeEffects(scheduler, [HostedReplica(replica="a", model="a", concurrency=1)], ready=["a"])
    served, low, high = host.request("a"), host.request("a"), host.request("a", priority=5)
    host.serve_done("a")
    expect(host.granted == [served, high], "of two waiting tickets, that of higher priority must be granted first")
    host.serve_done("a")
    expect(host.granted[2:] == [low], "a waiting ticket must be granted when the replica has room")


def _check_waiting(host: FakeEffects) -> None:
    shown = host.scheduler.waiting()
    expect_sequence("waiting", shown)
    expect(
        {each.ticket for each in shown} == set(host.waiting) and len(shown) == len(host.waiting),
        f"waiting must list every waiting ticket once: {[each.ticket.id for each in shown]}, and not "
        f"{[ticket.id for ticket in host.waiting]}",
    )
    expect([each.position for each in shown] == list(range(len(shown))), "waiting must number the tickets from 0")
    phases = {each.phase for each in shown}
    expect(phases <= {Phase.QUEUED, Phase.LOADING}, f"a waiting ticket is queued or loading, got {phases}")


def _check_shutdown(host: FakeEffects) -> None:
    waiting, error = list(host.waiting), ShuttingDown("The gateway stops")
    host.shutdown(error)
    expect(not host.waiting, "a shutdown must refuse every waiting ticket")
    expect(all(host.refused.get(ticket) is error for ticket in waiting), "a shutdown must refuse with the given error")


def _check_turns(shares: type[CallerTurns] | None) -> None:
    """Every caller gets turns, with and without a key, and each turn stays what it is."""
    if shares is None:
        return
    turns = shares()
    for caller, limit in (("a", None), ("b", 10), (None, 0), ("a", None)):
        turn = turns.next(caller, 2.0, 100, limit)
        expect(isinstance(turn, CallerTurn), "CallerTurns.next must return a CallerTurn")
        at = turn.at
        expect(isinstance(at, (int, float)) and at == at, "a turn must be a number")
        turn.granted()
        turn.ended(120)
        expect(turn.at == at, "a turn must never change")
