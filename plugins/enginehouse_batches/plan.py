"""Decides which lines run now, which models are loaded for them, and which lines make room for people. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from enginehouse import Candidate, Health, ReplicaState
from enginehouse_batches.objects import BatchSettings

_MOST_STOPS: Final = 3
"""A line that has made room so often runs to its end: else a busy gateway would compute it again and again."""
_HOUR_S: Final = 3600.0
_BESIDE_PEOPLE: Final = 8
"""An engine that serves people runs one line for so many of its slots: a prompt that is read delays other answers.

So does an engine whose host people have used within an hour, but always one: more lines would fill the caches of slots.
"""

Replicas = Callable[[str], Sequence[Candidate]]
"""The replicas that may serve a model."""


class Person(NamedTuple):
    """A live request that is no line. ``waits``: in a queue or for its model. ``queued``: not for a load of its own."""

    model: str
    backend: str | None
    waits: bool
    queued: bool


class RunningLine(NamedTuple):
    """A line that was sent. ``backend``: ``None`` until it is routed. ``stops``: how often it has made room."""

    id: str
    model: str
    backend: str | None
    stops: int


class Plan(NamedTuple):
    """Which lines run.

    - ``start``: how many more lines of each model.
    - ``aside``: the models whose lines leave the caches of engines to people.
    - ``stop``: ids of lines.
    - ``why``: no more of the others start.
    """

    start: Mapping[str, int]
    aside: Collection[str]
    stop: Sequence[str]
    why: Mapping[str, str]


class HostUse:
    """When people used each host, and when batches loaded models on it. ``quiet``, ``swaps``: of the settings."""

    def __init__(self, quiet: float, swaps: int) -> None:
        self._quiet = quiet
        self._swaps = swaps
        self._used: dict[str, float] = {}
        self._loads: dict[str, deque[float]] = {}

    def note_people(self, hosts: set[str], now: float) -> None:
        """People use these hosts now."""
        self._used.update(dict.fromkeys(hosts, now))

    def note_load(self, host: str, now: float) -> None:
        """A batch has a model loaded on a host."""
        loads = self._loads.setdefault(host, deque())
        loads.append(now)
        while loads[0] < now - _HOUR_S:
            loads.popleft()

    def is_used(self, host: str, now: float) -> bool:
        """Whether people have used ``host`` within an hour."""
        return now - self._used.get(host, -_HOUR_S) < _HOUR_S

    def why_no_load(self, host: str, now: float) -> str:
        """Why no model is loaded on ``host`` for a batch now; empty if one may be."""
        if not self.is_used(host, now):
            return ""
        if now - self._used[host] < self._quiet:
            return f"people use the host '{host}'"
        recent = sum(now - at < _HOUR_S for at in self._loads.get(host, ()))
        if recent >= self._swaps:
            return f"batches have loaded {recent} models on '{host}' within an hour"
        return ""


def plan(
    waiting: Mapping[str, int],
    running: Sequence[RunningLine],
    people: Sequence[Person],
    replicas: Replicas,
    use: HostUse,
    settings: BatchSettings,
    now: float,
) -> Plan:
    """Decide for ``waiting`` lines, whose models are in the order in which they are to be served."""
    use.note_people(_hosts_of(people, replicas), now)
    wanted = Counter(person.model for person in people if person.waits)
    stop = _stopped(wanted, [person for person in people if person.queued], running, replicas)
    start: dict[str, int] = {}
    why: dict[str, str] = {}
    short = {each.backend for model in wanted for each in replicas(model)}
    shared = {person.backend for person in people}
    for model, lines in waiting.items():
        ready = [each for each in replicas(model) if _is_ready(each)]
        if not ready:
            continue
        able = [each for each in ready if each.backend not in short]
        most = [_most(each, shared, use.is_used(each.host, now), settings.slots) for each in able]
        room = sum(_room(each, running, own) for each, own in zip(able, most, strict=True))
        room -= sum(line.backend is None and line.model == model for line in running)
        if room > 0:
            start[model] = min(room, lines)
        else:
            why[model] = "no slot is free that nobody waits for"
    cold = [model for model in waiting if model not in start and model not in why]
    loading = any(not any(map(_is_ready, replicas(line.model))) for line in running)
    for model in cold:
        host, why[model] = _host_for(model, replicas, use, now)
        if not why[model] and (loading or any(_serves(each, host, replicas) for each in waiting if each != model)):
            why[model] = "another model of a batch is served first"
        if not why[model]:
            start[model], loading = 1, True
            use.note_load(host, now)
    aside = {model for model in start if any(use.is_used(each.host, now) for each in replicas(model))}
    return Plan(start, aside, stop, {model: each for model, each in why.items() if each})


def _is_ready(candidate: Candidate) -> bool:
    usable = candidate.health is not Health.UNHEALTHY and not candidate.draining and not candidate.paused
    return candidate.state is ReplicaState.READY and usable


def _hosts_of(people: Sequence[Person], replicas: Replicas) -> set[str]:
    """The hosts that people use or wait for."""
    found: set[str] = set()
    for model, backend in {(person.model, person.backend) for person in people}:
        found.update(each.host for each in replicas(model) if backend is None or each.backend == backend)
    return found


def _most(engine: Candidate, shared: set[str | None], is_used: bool, most: int) -> int:
    """How many lines may run at an engine.

    ``shared``: the backends that serve people now. ``is_used``: whether people have used its host within an hour.
    """
    slots = engine.load.slots
    if engine.backend in shared:
        return min(most, slots // _BESIDE_PEOPLE) if slots else 1
    return min(most, max(1, slots // _BESIDE_PEOPLE)) if slots and is_used else most


def _room(engine: Candidate, running: Sequence[RunningLine], most: int) -> int:
    """How many more lines an engine may get of ``most``: one slot stays free for people."""
    load = engine.load
    if load.engine_waiting:
        return 0
    own, free = most - sum(line.backend == engine.backend for line in running), load.free
    return max(0, own if free is None else min(own, free - (load.slots > 1)))


def _stopped(
    wanted: Mapping[str, int], queued: Sequence[Person], running: Sequence[RunningLine], replicas: Replicas
) -> list[str]:
    """The lines that hold what people wait for: a slot of a model that is loaded, or the host of one that is not."""
    stopped: dict[str, None] = {}
    queued_models = {person.model for person in queued}
    for model, number in wanted.items():
        able = replicas(model)
        ready = {each.backend for each in able if _is_ready(each)}
        lines = [line for line in running if line.stops < _MOST_STOPS and line.id not in stopped]
        if ready:
            holders = [line.id for line in lines if line.backend in ready or line.model == model]
            stopped.update(dict.fromkeys(holders[-number:]))
        elif model in queued_models:
            hosts = {each.host for each in able}
            stopped.update({line.id: None for line in lines if _is_on(line, hosts, replicas)})
    return [*stopped]


def _is_on(line: RunningLine, hosts: set[str], replicas: Replicas) -> bool:
    """Whether a line runs on one of these hosts, or will."""
    return any(each.host in hosts for each in replicas(line.model) if line.backend in (None, each.backend))


def _host_for(model: str, replicas: Replicas, use: HostUse, now: float) -> tuple[str, str]:
    """A host on which a model may be loaded now; or why there is none."""
    able = [each for each in replicas(model) if each.state is not ReplicaState.READY and not each.draining]
    reasons = [(each.host, use.why_no_load(each.host, now)) for each in able]
    if not reasons:
        known = any(True for _ in replicas(model))
        return "", "no healthy engine has the model" if known else ""
    return min(reasons, key=lambda each: bool(each[1]))


def _serves(model: str, host: str, replicas: Replicas) -> bool:
    """Whether a model is loaded on ``host``."""
    return any(each.host == host and _is_ready(each) for each in replicas(model))
