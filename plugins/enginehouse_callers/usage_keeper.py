"""Hands what callers have used, and what operators have done, to the usage store."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from traceback import format_exception_only
from typing import TypeVar

from enginehouse.callers import AuditEntry, UsageRow
from enginehouse.errors import ShuttingDown
from enginehouse.runtime import PluginId, plugin_errors
from enginehouse_callers.usage_meter import UsageMeter
from enginehouse_kit.usage_stores import UsageStore

_log = logging.getLogger(__name__)

_FORGET_EVERY_S = 3600.0
_MOST_ENTRIES = 1000
_LAST_WRITES_S = 15.0
_AGAIN_S = 0.1
_T = TypeVar("_T")


class UsageKeeper:
    """Writes in a thread of the store's own. If ``write`` is called every second, a killed gateway loses the last one.

    What cannot be written is kept and written later; the log says so once. ``keep``: the seconds after which it is
    forgotten, 0 for never. Until ``use``, only the last acts of operators are remembered.
    """

    def __init__(self, meter: UsageMeter, keep: float, epoch: Callable[[], float]) -> None:
        self.meter = meter
        self.keep = keep
        self._store: UsageStore | None = None
        self._plugin: PluginId
        self._epoch = epoch
        self._entries: list[AuditEntry] = []
        self._last: deque[AuditEntry] = deque(maxlen=_MOST_ENTRIES)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="usage")
        self._reading = asyncio.Lock()
        self._closes = False
        self._writing: asyncio.Task[None] | None = None
        self._forgotten_at = 0.0
        self._problem = ""

    @property
    def has_store(self) -> bool:
        return self._store is not None

    def use(self, store: UsageStore, plugin: PluginId) -> None:
        """Keep everything in ``store``, which is of ``plugin``, from now on."""
        self._store, self._plugin = store, plugin
        self._entries = list(self._last)

    def add(self, rows: Sequence[UsageRow]) -> None:
        """Write ``rows`` too, if there is a store."""
        if self._store is not None:
            self.meter.put_back(rows)

    def note(self, entry: AuditEntry) -> None:
        self._last.append(entry)
        if self._store is not None:
            self._entries = [*self._entries, entry][-_MOST_ENTRIES:]

    async def usage(
        self,
        since: float,
        until: float,
        by: Sequence[str] = ("hour", "key", "model", "user"),
        key: str | None = None,
        most: int | None = None,
    ) -> Sequence[UsageRow]:
        """As ``UsageStore.sums``, up to this moment."""
        await self.write()
        store = self._store
        if store is None:
            return ()
        return await self._read(partial(store.sums, since, until, by, key, most))

    async def audit(self, since: float, most: int) -> Sequence[AuditEntry]:
        """The last ``most`` acts of operators since then, the newest first."""
        await self.write()
        store = self._store
        if store is None:
            return [each for each in reversed(self._last) if each.time >= since][:most]
        return await self._read(partial(store.audit, since, most))

    async def write(self) -> None:
        """Write what there is, and drop what is too old.

        Whoever stops waiting for it stops no write: what the store may have is not given back to the meter.
        """
        running = self._writing
        if running is not None:
            await asyncio.shield(running)
        if self._writing is running:
            self._writing = asyncio.create_task(self._write())
        assert self._writing is not None
        await asyncio.shield(self._writing)

    async def _write(self) -> None:
        store = self._store
        if store is None:
            return
        rows, entries = self.meter.take(), self._entries
        if rows or entries:
            self._entries = []
            if not await self._tried(partial(store.add, rows, entries)):
                self.meter.put_back(rows)
                self._entries = [*entries, *self._entries][-_MOST_ENTRIES:]
        now = self._epoch()
        if self.keep and now > self._forgotten_at + _FORGET_EVERY_S:
            self._forgotten_at = now
            await self._tried(partial(store.forget, now - self.keep))

    async def close(self) -> None:
        """Write the rest, for 15 seconds if that fails at first, and close the store."""
        self._closes = True
        ends = monotonic() + _LAST_WRITES_S
        await self.write()
        while self._problem and monotonic() < ends:
            await asyncio.sleep(_AGAIN_S)
            await self.write()
        if self._store is not None:
            await self._tried(self._store.close)
        self._thread.shutdown(wait=False)

    async def _read(self, work: Callable[[], _T]) -> _T:
        """Read from the store. One read at a time is in the thread, so that a write waits for one at most."""
        async with self._reading:
            if self._closes:
                raise ShuttingDown("The gateway is shutting down")
            return await self._in_thread(partial(self._named, work))

    def _named(self, work: Callable[[], _T]) -> _T:
        """Raise ``PluginFailed``, which names the store, for whatever ``work`` raises."""
        with plugin_errors(self._plugin):
            return work()

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _tried(self, work: Callable[[], None]) -> bool:
        """Whether ``work`` is done."""
        try:
            await self._in_thread(work)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # even SystemExit, which would end the gateway
            if not self._problem:
                _log.warning("Usage cannot be stored, and is kept in memory: %s", _text(error))
            self._problem = _text(error)
            return False
        if self._problem:
            _log.warning("Usage is stored again")
        self._problem = ""
        return True


def _text(error: BaseException) -> str:
    return format_exception_only(error)[-1].strip()
