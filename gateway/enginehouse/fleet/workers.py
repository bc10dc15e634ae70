"""What the processes of a gateway tell each other of backends: their state, their load, and outcomes of requests."""

from __future__ import annotations

import mmap
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.replica import Health, Load, ReplicaState
from enginehouse.fleet.live_backend import LiveBackend, Suspicion

_OLDEST_S: Final = 0.001
"""A view of the others' load that is 10 ms old is worth nothing, one of 50 ms does harm: all run to one engine."""
MOST_BACKENDS: Final = 4096
TURNS: Final = 40
Answers = dict[str, int]
"""The number of answers by backend."""
Latencies = dict[str, tuple[int, float]]
"""The times to the first byte by backend: their number and their sum, in milliseconds."""
News = list[tuple[str, list[Any]]]
"""Names of methods of ``Fleet`` with their arguments, of which the first is a backend."""


class BackendView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that decisions read of a backend and the configuration does not say.

    The fields are those of ``LiveBackend``, ``HealthTracker``, ``RoutingPauses`` and ``Load``, under the same names.
    """

    name: str
    has_listed: bool = False
    discovered: Mapping[str, Capabilities] = {}
    proxied: frozenset[str] = frozenset()
    draining: bool = False
    states: Mapping[str, tuple[ReplicaState, float, int]] = {}
    health: Health = Health.UNKNOWN
    steady: bool = False
    streak: int = 0
    doubts: int = 0
    trips: int = 0
    last_error: str | None = None
    last_error_at: float | None = None
    problem: str = ""
    late: bool = False
    left_alone_until: float = 0.0
    suspicions: Mapping[str, Suspicion] = {}
    slots: int = 0
    engine_waiting: int = 0
    kv_usage: float = 0.0
    figures_at: float | None = None
    cache_tokens: int = 0
    adapters: tuple[str, ...] = ()
    max_adapters: int = 0
    error_share: float = 0.0


_OF_BACKEND = ("has_listed", "discovered", "proxied", "draining", "states")
_OF_HEALTH = ("health", "steady", "streak", "doubts", "trips", "last_error", "last_error_at", "problem", "late")
_OF_PAUSES = ("left_alone_until", "suspicions")
_OF_REPORT = ("engine_waiting", "kv_usage", "figures_at", "cache_tokens", "adapters", "max_adapters")
_OF_LOAD = ("slots", "error_share", *_OF_REPORT)


def view_of(live: LiveBackend) -> BackendView:
    """The state of ``live``."""
    fields = {name: getattr(part, name) for part, names in _parts(live) for name in names}
    fields |= {name: dict(fields[name]) for name in ("states", "suspicions")}  # these change in place
    return BackendView(name=live.info.name, **fields)


def follow(live: LiveBackend, view: BackendView) -> None:
    """Give ``live`` the state of ``view``."""
    if view.health is Health.HEALTHY and live.health.health is not Health.HEALTHY:
        live.load.forget_latencies()
    for part, names in _parts(live):
        for name in names:
            setattr(part, name, getattr(view, name))


def _parts(live: LiveBackend) -> Sequence[tuple[object, Sequence[str]]]:
    return (live, _OF_BACKEND), (live.health, _OF_HEALTH), (live.pauses, _OF_PAUSES), (live.load, _OF_LOAD)


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


class LoadBoard:
    """Plain numbers in shared memory, one writer each: whoever is forked after this has them too.

    For each backend, which has a column, cells: one for each worker and the last one for their owner. ``beats``: of
    each worker, the time of its last sign of life, in seconds of the gateway's clock. ``waiting``: for how
    many models its requests wait. ``connections``: of its clients.
    """

    def __init__(self, workers: int, backends: int = MOST_BACKENDS) -> None:
        self.workers = workers
        self._most = backends
        self._row = workers + 1
        self._cells = memoryview(mmap.mmap(-1, self._row * backends * 4)).cast("i")
        self.beats = memoryview(mmap.mmap(-1, workers * 8)).cast("d")
        self.waiting = memoryview(mmap.mmap(-1, workers * 4)).cast("i")
        self.connections = memoryview(mmap.mmap(-1, workers * 4)).cast("i")
        self._turns = memoryview(mmap.mmap(-1, workers * TURNS * 8)).cast("d")

    def cells(self, column: int) -> memoryview:
        return self._cells[column * self._row : (column + 1) * self._row]

    def turns(self, worker: int) -> memoryview[float]:
        """``TURNS`` numbers with which the worker's waiting room shows whose turn it is."""
        return self._turns[worker * TURNS : (worker + 1) * TURNS]

    def clear(self, worker: int) -> None:
        """Forget the requests of a worker that has died."""
        for cell in range(worker, self._most * self._row, self._row):
            if self._cells[cell]:
                self._cells[cell] = 0
        self.waiting[worker] = self.connections[worker] = 0
        self.turns(worker)[0] = 0.0


class BoardColumns:
    """Gives backends their columns. A column whose backend is gone is used again once no request counts in it."""

    def __init__(self, board: LoadBoard) -> None:
        self._board = board
        self._free = list(range(MOST_BACKENDS - 1, -1, -1))
        self._left: list[int] = []
        self._by_name: dict[str, int] = {}

    def assign(self, names: Iterable[str]) -> Mapping[str, int]:
        """The column of each backend; one that finds no room has none, and its load is not shared."""
        wanted = dict.fromkeys(names)
        for name in [name for name in self._by_name if name not in wanted]:
            self._left.append(self._by_name.pop(name))
        ended = [column for column in self._left if not any(self._board.cells(column))]
        self._left = [column for column in self._left if column not in ended]
        self._free += ended
        for name in wanted:
            if name not in self._by_name and self._free:
                self._by_name[name] = self._free.pop()
        return dict(self._by_name)


class BoardReader:
    """Keeps the ``pending`` of loads as all workers together have it, at most a millisecond old."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._read_at = 0.0
        self._loads: Sequence[Load] = ()

    def watch(self, loads: Sequence[Load]) -> None:
        """Read the cells of these from now on."""
        self._loads = loads
        self._read_at = 0.0

    def expire(self) -> None:
        """Read the cells at the next ``refresh``: they have changed."""
        self._read_at = 0.0

    def refresh(self) -> None:
        """Read the cells, if they were last read more than a millisecond ago."""
        now = self._clock()
        if now - self._read_at >= _OLDEST_S:
            self._read_at = now
            for load in self._loads:
                load.refresh()
