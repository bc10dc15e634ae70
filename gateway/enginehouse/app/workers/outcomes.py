"""What a worker's requests tell of backends, on its way to the owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from enginehouse.app.workers.messages import Outcomes
from enginehouse.domain.backend_load import Load
from enginehouse.fleet.fleet import Fleet

_MOST_ANSWERS: Final = 64
"""More answers at once change an average no further than so many do."""


class OutcomeSender:
    """Collects outcomes: failures go at once, successes of healthy backends with ``flush``, ten times a second.

    Implements ``OutcomeReports``. ``name_of`` knows the backend of a load.

    The worker judges a backend by its news at once. What the owner told before it had them must not undo that.
    """

    def __init__(self, send: Callable[[msgspec.Struct], None], name_of: Callable[[Load], str | None]) -> None:
        self._send = send
        self._name_of = name_of
        self._good: defaultdict[str, int] = defaultdict(int)
        self._latencies: dict[int, list[Any]] = {}
        self._news: list[tuple[str, list[Any]]] = []
        self._sent = self._judged = 0
        self._unjudged: dict[str, int] = {}

    def succeeded(self, name: str, steady: bool) -> None:
        self._good[name] += 1
        if not steady:
            self.flush()

    def failed(self, name: str, why: str) -> None:
        self._tell("failed", name, why)

    def doubted(self, name: str, why: str) -> None:
        self._tell("doubted", name, why)

    def answered(self, load: Load, latency_ms: float) -> None:
        known = self._latencies.get(id(load))
        if known is None:
            known = self._latencies[id(load)] = [self._name_of(load), 0, 0.0]
        known[1] += 1
        known[2] += latency_ms

    def served(self, name: str, model: str) -> None:
        self._tell("served", name, model)

    def refused(self, name: str, model: str, status: int) -> None:
        self._tell("refused", name, model, status)

    def leave_alone(self, name: str, seconds: float) -> None:
        self._tell("leave_alone", name, seconds)

    def flush(self) -> None:
        """Send everything now."""
        if self._good or self._latencies or self._news:
            self._sent += bool(self._news)
            for _, (name, *_) in self._news:
                self._unjudged[name] = self._sent
            latencies = {name: (count, total) for name, count, total in self._latencies.values() if name is not None}
            self._send(Outcomes(dict(self._good), latencies, self._news))
            self._good.clear()
            self._latencies, self._news = {}, []

    def judged(self) -> None:
        """Note that the owner has the oldest news that it had not."""
        self._judged += 1
        self._unjudged = {name: number for name, number in self._unjudged.items() if number > self._judged}

    def awaits_judgement(self, name: str) -> bool:
        """Whether the owner does not know yet what requests told of a backend."""
        return name in self._unjudged

    def _tell(self, method: str, *facts: object) -> None:
        self._news.append((method, list(facts)))
        self.flush()


def take_outcomes(fleet: Fleet, outcomes: Outcomes) -> None:
    """Have ``fleet`` judge its backends by what a worker tells."""
    names = {each.name for each in fleet.backends()} if outcomes.latencies else set()
    for name, number in outcomes.good.items():
        for _ in range(number):
            fleet.succeeded(name)
    for name, (count, total) in outcomes.latencies.items():
        if name in names:
            load = fleet.load(name)
            for _ in range(min(count, _MOST_ANSWERS)):
                fleet.answered(load, total / count)
    methods: dict[str, Callable[..., None]] = {
        "failed": fleet.failed,
        "doubted": fleet.doubted,
        "served": fleet.served,
        "refused": fleet.refused,
        "leave_alone": fleet.leave_alone,
    }
    for method, facts in outcomes.news:
        methods[method](*facts)
