"""The memory that the owner and its workers share. It is made before the workers are forked."""

from __future__ import annotations

import mmap

from enginehouse.config.schema import Config, LimitSettings
from enginehouse.fleet.load_board import LoadBoard
from enginehouse.interfaces.limit_stores import LimitStore
from enginehouse.processes.workers.shared_limits import LimitMemory, SharedLimitStore


class WorkerMemory:
    """The load of backends and the limits of keys, for a number of ``workers``, and how often keys have changed."""

    def __init__(self, workers: int) -> None:
        self.board = LoadBoard(workers)
        self.key_changes = memoryview(mmap.mmap(-1, 8)).cast("q")
        self._limits = LimitMemory(workers + 1)

    def limit_store(self, config: Config, number: int) -> LimitStore | None:
        """The limits as the process with a ``number`` sees them; the owner's comes after those of all workers.

        ``None`` if the configuration has a store that gateways share anyway.
        """
        if config.limits.store != LimitSettings().store:
            return None
        return SharedLimitStore(self._limits, number)

    def clear(self, worker: int) -> None:
        """Forget the requests of a worker that has died."""
        self.board.clear(worker)
        self._limits.clear(worker)
