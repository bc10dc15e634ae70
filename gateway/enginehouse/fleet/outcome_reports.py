"""What a worker's requests tell of backends, for the process that judges them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from enginehouse.domain.backend_load import Load

Answers = dict[str, int]
"""The number of answers by backend."""
Latencies = dict[str, tuple[int, float]]
"""The times to the first byte by backend: their number and their sum, in milliseconds."""
News = list[tuple[str, list[Any]]]
"""Names of methods of ``Fleet`` with their arguments, of which the first is a backend."""


class OutcomeReports:
    """Collects outcomes: failures go at once, successes of healthy backends with ``flush``, ten times a second.

    The worker judges a backend by its news at once. What the owner told before it had them must not undo that.
    """

    def __init__(self, send: Callable[[Answers, Latencies, News], None]) -> None:
        self._send = send
        self._good: defaultdict[str, int] = defaultdict(int)
        self._latencies: Latencies = {}
        self._news: News = []
        self._sent = self._judged = 0
        self._unjudged: dict[str, int] = {}

    def succeeded(self, name: str, steady: bool) -> None:
        """Count an answer. ``steady``: more of them change nothing, so the news may wait."""
        self._good[name] += 1
        if not steady:
            self.flush()

    def answered(self, load: Load, latency_ms: float) -> None:
        """Add the time to the first byte of an answer."""
        count, total = self._latencies.get(load.backend, (0, 0.0))
        self._latencies[load.backend] = count + 1, total + latency_ms

    def tell(self, method: str, *facts: object) -> None:
        """Tell at once that a ``method`` of the fleet was called with these arguments."""
        self._news.append((method, list(facts)))
        self.flush()

    def flush(self) -> None:
        """Send everything now."""
        if self._good or self._latencies or self._news:
            self._sent += bool(self._news)
            for _, (name, *_) in self._news:
                self._unjudged[name] = self._sent
            self._send(dict(self._good), self._latencies, self._news)
            self._good.clear()
            self._latencies, self._news = {}, []

    def judged(self) -> None:
        """Note that the owner has the oldest news that it had not."""
        self._judged += 1
        self._unjudged = {name: number for name, number in self._unjudged.items() if number > self._judged}

    def awaits_judgement(self, name: str) -> bool:
        """Whether the owner does not know yet what requests told of a backend."""
        return name in self._unjudged
