"""The live load of a backend. Compiled: every request changes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp
from typing import Final

_LEAST_WEIGHT: Final = 0.01
"""The weight of a new latency after many answers. It is small, because prompts differ far more than backends do."""
_OVERTAKEN_WEIGHT: Final = 0.1
"""The least weight of a request that another engine began first: too many of them are the engine's fault."""
_AGED_WEIGHT: Final = 0.25
"""The most weight of an answer after ageing: with more, one slow answer would be held against an equal engine."""
_TURNS: Final = 4
"""The averages are aged when every backend could have answered so often."""
_MISSED_TURNS: Final = 3
_BENEFIT_MS: Final = 20.0
"""So much lower than the others' the average ends, so that the backend is tried where all else is equal."""
_AGE_S: Final = 60.0
"""After so many turns that a backend missed, or so long, its average has moved by 63 % of its way to the others'."""


@dataclass
class Load:
    """The live load figures of one backend, shared by all its candidates.

    The gateway updates them when requests start and end. Plugins only read them.
    """

    pending: int = 0
    """Requests that were sent to the backend and have not ended."""
    avg_latency_ms: float = 0.0
    """The average time to the first byte: of all answers up to 100, then exponential (weight 0.01); at first 0.

    While the backend gets no requests, it moves towards the averages of others with the same model."""
    latency_weight: float = 1.0
    """The weight of the next answer in this average."""
    error_share: float = 0.0
    """The share of bad answers in the last two minutes, from 0 to 1; 0 for fewer than ten answers."""
    answers: int = 0
    """The answers in this average since stale averages were last aged."""
    slots: int = 0
    """The most requests that it serves at once; the gateway queues others. 0: no limit is known."""
    engine_waiting: int = 0
    """Requests that wait inside the engine, as it last reported."""
    kv_usage: float = 0.0
    """The share of the engine's KV cache that is in use, from 0 to 1, as it last reported."""
    figures_at: float | None = None
    """When the engine was last asked for these two, in seconds of the gateway's clock; ``None``: it never reported."""
    cache_tokens: int = 0
    """The tokens that the engine's KV cache holds, as it last reported; 0 if it did not say."""
    adapters: tuple[str, ...] = ()
    """The LoRA adapters of its running and waiting requests, as it last reported, by its own names for them."""
    max_adapters: int = 0
    """The most adapters that it runs at once; 0 if it did not say."""

    backend: str = field(default="", repr=False, compare=False)
    """The name of the backend."""
    cells: memoryview | None = field(default=None, repr=False, compare=False)
    """The requests that each worker has at the backend, in memory that all share; ``None`` in a gateway of one."""
    own_cell: int = field(default=0, repr=False, compare=False)

    def share(self, cells: memoryview | None, own_cell: int) -> None:
        """Count in ``cells`` from now on, in the ``own_cell`` of this process, what ``refresh`` adds up.

        Requests that are in flight stay counted, also those of an earlier load of the backend.
        """
        mine = self.pending
        if self.cells is not None:
            mine, self.cells[self.own_cell] = self.cells[self.own_cell], 0
        self.cells, self.own_cell = cells, own_cell
        if cells is not None:
            cells[own_cell] += mine

    def refresh(self) -> None:
        """Set ``pending`` to what all workers have there now."""
        if self.cells is not None:
            self.pending = sum(self.cells)

    @property
    def free(self) -> int | None:
        """Free slots; ``None`` if no limit is known."""
        return max(0, self.slots - self.pending) if self.slots else None

    def report(self, waiting: int, kv_usage: float, cache_tokens: int, at: float) -> None:
        """Take the figures that the engine was asked for ``at`` a time."""
        self.engine_waiting, self.kv_usage, self.figures_at = waiting, kv_usage, at
        self.cache_tokens = cache_tokens

    def report_adapters(self, active: tuple[str, ...], most: int) -> None:
        """Take what the engine said of its LoRA adapters."""
        self.adapters, self.max_adapters = active, most

    def forget_latencies(self) -> None:
        """Begin the average again, because another engine process may answer now."""
        self.avg_latency_ms, self.latency_weight = 0.0, 1.0

    def begin(self) -> None:
        """Count a request that was sent."""
        self.pending += 1
        if self.cells is not None:
            self.cells[self.own_cell] += 1

    def end(self) -> None:
        """Count a request that ended, successfully or not."""
        self.pending -= 1
        if self.cells is not None:
            self.cells[self.own_cell] -= 1

    def answered(self, latency_ms: float) -> None:
        """Add the latency of an answer to the average."""
        weight = self.latency_weight
        self.answers += 1
        self.avg_latency_ms += weight * (latency_ms - self.avg_latency_ms)
        if weight > _LEAST_WEIGHT:
            self.latency_weight = weight / (1 + weight)

    def overtaken(self, waited_ms: float) -> None:
        """Count a request that another engine began first, after this one had ``waited_ms`` for it."""
        if waited_ms > self.avg_latency_ms:
            self.latency_weight = max(self.latency_weight, _OVERTAKEN_WEIGHT)
            self.answered(waited_ms)

    def age(self, others_ms: float, share: float) -> None:
        """Move the average towards that of others by ``share``, from 0 to 1. The next answer weighs the more."""
        self.avg_latency_ms += share * (others_ms - self.avg_latency_ms)
        self.latency_weight = max(self.latency_weight, _AGED_WEIGHT * share)


class StaleAverages:
    """Ages averages in rounds of four answers for each backend. ``left``: the answers until the round ends.

    A backend that answers within a round keeps its average. Another one with the same model that does not may have
    been slow once, and then nobody asks it again: its average moves towards theirs until it is asked.
    """

    def __init__(self, now: float) -> None:
        self.left = _TURNS
        self._aged_at = now

    def age(self, rows: Sequence[Sequence[Load]], backends: int, now: float) -> None:
        """Age the stale averages of ``rows``, the backends of each model, and begin a new round."""
        passed = max(0.0, now - self._aged_at)
        aged: set[int] = set()
        for row in rows:
            stale = [load for load in row if not load.answers and id(load) not in aged]
            if stale and len(stale) < len(row):
                _age(stale, row, passed)
                aged.update(map(id, stale))
        for row in rows:
            for load in row:
                load.answers = 0
        self.left, self._aged_at = max(1, backends) * _TURNS, now


def _age(stale: Sequence[Load], row: Sequence[Load], passed: float) -> None:
    answers = sum(load.answers for load in row)
    if not answers:
        return
    others = max(0.0, sum(load.avg_latency_ms * load.answers for load in row) / answers - _BENEFIT_MS)
    share = 1 - exp(-answers / len(row) / _MISSED_TURNS - passed / _AGE_S)
    for load in stale:
        if load.latency_weight < 1:
            load.age(others, share)
