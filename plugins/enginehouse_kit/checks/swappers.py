"""The conformance check of swappers: many hosts, every target, and every set of running replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from enginehouse import Swapper
from enginehouse.errors import LoadFailed
from enginehouse.tickets import HostedReplica, HostFacts, SwapPlan
from enginehouse_kit.expect import expect, expect_sequence, warn_if_slow

_MODELS = ("a", "b", "c", "d")
_GIB = 1024**3


def check_swapper(factory: Callable[[], Swapper], models: Sequence[str] = _MODELS) -> None:
    """Check a swapper against the rules of its interface. Raises ``AssertionError``.

    It may evict only running replicas, never the target or a pinned one, and asking must change nothing. It may raise
    ``LoadFailed``. ``models`` are the models of the hosts, for a swapper whose parameters name models.
    """
    _warn_if_slow(factory(), next(_hosts(models)))
    for host in _hosts(models):
        it = factory()
        it.prepare(host)
        for target in host.replicas:
            for running in _running(host):
                _check_answer(it, host, target, running)


def _warn_if_slow(it: Swapper, host: HostFacts) -> None:
    it.prepare(host)
    target, *running = host.replicas
    warn_if_slow("eviction_for", lambda: _eviction(it, target, running))


def _check_answer(it: Swapper, host: HostFacts, target: str, running: Sequence[str]) -> None:
    given = list(running)
    evict = _eviction(it, target, given)
    for again in (given, tuple(given)):
        expect(_eviction(it, target, again) == evict, f"the same question must get the same answer, first {evict}")
    _check_plan(it, target, given, evict)
    expect(given == running, "the sequence of running replicas must not be changed")
    if evict is None:
        return
    expect(set(evict) <= set(running), f"only running replicas can be evicted, got {evict} of {running}")
    expect(len(set(evict)) == len(evict), f"a replica must be evicted once, got {evict}")
    expect(target not in evict, f"the target '{target}' must not be evicted")
    dispensable = it.dispensable(target, given)
    expect_sequence("dispensable", dispensable)
    expect(set(dispensable) <= set(running), f"only running replicas are dispensable, got {dispensable} of {running}")
    pinned = [replica for replica in evict if host.replicas[replica].pin]
    expect(not pinned, f"pinned replicas must not be evicted, got {pinned}")
    it.on_swap_start(target, given)


def _eviction(it: Swapper, target: str, running: Sequence[str]) -> list[str] | None:
    """The eviction, or ``None`` if the target cannot run."""
    try:
        evict = it.eviction_for(target, running)
    except LoadFailed:
        return None
    expect_sequence("eviction_for", evict)
    return list(evict)


def _check_plan(it: Swapper, target: str, running: Sequence[str], evict: Sequence[str] | None) -> None:
    try:
        plan = it.explain(target, running)
    except LoadFailed:
        expect(evict is None, "explain must not refuse a target that eviction_for has an answer for")
        return
    expect(isinstance(plan, SwapPlan), f"explain must return a SwapPlan, got {plan!r}")
    expect(plan.target == target and plan.evict == evict, f"explain must agree with eviction_for, got {plan}")
    stays = {replica for replica in running if replica not in plan.evict}
    expect(set(plan.set) == {*stays, target}, f"explain must say what runs afterwards, got {plan.set}")


def _hosts(models: Sequence[str]) -> Iterator[HostFacts]:
    """Hosts with and without budget, pins and a second replica; with declared, measured and unknown sizes."""
    sizes = [(number + 1) * _GIB for number in range(len(models))]
    plain = [HostedReplica(replica=f"{model}@{model}", model=model) for model in models]
    pinned = [HostedReplica(replica=f"{model}@{model}", model=model, pin=model == models[0]) for model in models]
    sized = [
        HostedReplica(replica=f"{model}@{model}", model=model, memory=size)
        for model, size in zip(models, sizes, strict=True)
    ]
    second = HostedReplica(replica=f"{models[0]}@{models[0]}-2", model=models[0])
    learned = {f"{model}@{model}": size for model, size in zip(models[::2], sizes[::2], strict=True)}
    for replicas in (plain, pinned, sized, [*plain, second]):
        for budget in (None, 0, sizes[-1], sum(sizes)):
            for measured in ({}, learned):
                named = {hosted.replica: hosted for hosted in replicas}
                yield HostFacts(name="local", memory=budget, replicas=named, measured=measured)


def _running(host: HostFacts) -> Iterator[list[str]]:
    """Every subset of replicas, in both orders."""
    for size in range(len(host.replicas) + 1):
        for some in combinations(host.replicas, size):
            yield list(some)
            yield list(some)[::-1]
