"""The memory that the owner and its workers share. It is made before the workers are forked."""

from __future__ import annotations

import mmap

from enginehouse.app.callers import SharedAccounts, share_accounts
from enginehouse.fleet.workers import LoadBoard
from enginehouse.plugin_manager.registry import Registry


class WorkerMemory:
    """The load of backends, and what plugins of ``registry`` count of requests, for a number of ``workers``."""

    def __init__(self, workers: int, registry: Registry) -> None:
        self.board = LoadBoard(workers)
        self._accounts = share_accounts(registry, workers + 1)
        self._changes = memoryview(mmap.mmap(-1, 8)).cast("q")

    def accounts(self, number: int) -> SharedAccounts:
        """What the process with a ``number`` shares; the owner's comes after those of all workers."""
        return SharedAccounts(self._accounts, number, self._changes)
