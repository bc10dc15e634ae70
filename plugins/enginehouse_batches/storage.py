"""The store in a thread of its own: SQLite and files never delay the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from enginehouse_batches.store import Store

P = ParamSpec("P")
T = TypeVar("T")


class Storage:
    """Calls methods of ``store`` one after the other."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._thread = ThreadPoolExecutor(1, "batches")

    async def call(self, method: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of a method of the store."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(method, *arguments, **named))

    async def close(self) -> None:
        """Close the store, after what was called before."""
        await self.call(self.store.close)
        self._thread.shutdown(wait=False)
