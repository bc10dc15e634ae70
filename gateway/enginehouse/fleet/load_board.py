"""The requests of all workers at all backends, in memory that their processes share."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from enginehouse.domain.backend_load import Load

_OLDEST_S: Final = 0.001
"""A view of the others' load that is 10 ms old is worth nothing, one of 50 ms does harm: all run to one engine."""
MOST_BACKENDS: Final = 4096
TURNS: Final = 40


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
