"""The time limits of one start: one for the whole of it, and one for silence."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from enginehouse.aio.timeouts import run_within
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import EnginehouseError
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.telemetry.log_ring import LogRing

T = TypeVar("T")

_LONGEST_START_S = 120
_LONGEST_WATCHED_START_S = 24 * 3600
_LOOKS = 10
"""Looks for a sign of progress within the longest silence."""
_LONGEST_PAUSE_S = 5.0
_SIGN_BYTES = 1 << 20
"""An engine that hangs still answers health checks: the few bytes of these are no progress."""


def longest_start(model: ModelSettings) -> float:
    """The time limit for starting ``model``. A start that must show progress needs no tight one."""
    if model.start_timeout is not None:
        return model.start_timeout
    return _LONGEST_START_S if model.start_silence is None else _LONGEST_WATCHED_START_S


def longest_silence(model: ModelSettings) -> float:
    """The longest time of a start without a sign of progress."""
    return longest_start(model) if model.start_silence is None else model.start_silence


class StartLimits:
    """Limits a start that begins now.

    Signs of progress are output in ``log``, bytes that the engine moves, and a new problem or phase.
    """

    def __init__(self, model: ModelSettings, log: LogRing) -> None:
        self._loop = asyncio.get_running_loop()
        self._total = longest_start(model)
        self._silence = self._total if model.start_silence is None else model.start_silence
        self._log = log
        self._heard = self._loop.time()
        self._end = self._heard + self._total
        self._printed = log.received
        self._moved: int | None = None

    def note_progress(self) -> None:
        """Note that the start makes progress."""
        self._heard = self._loop.time()

    @property
    def missed(self) -> str:
        """The limit that the start has missed, as the end of the sentence that begins with "it"; empty if none."""
        now = self._loop.time()
        if now >= self._end:
            return f"was not ready within {self._total:g} s"
        if now >= self._heard + self._silence:
            return f"showed no sign of progress for {self._silence:g} s"
        return ""

    async def run(self, work: Coroutine[Any, Any, T], process: EngineProcess | None = None) -> T:
        """Run a part of the start, of the engine ``process`` if there is one already.

        Raises ``TimeoutError`` once a limit is missed. Does not wait for work that resists its cancellation.
        """
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._heard = self._loop.time()
        try:
            while not task.done():
                await asyncio.wait({task}, timeout=self._until_next_look())
                if not task.done() and await self._is_over(process):
                    raise TimeoutError
            return task.result()
        finally:
            task.cancel()
            del task  # a failure refers to this frame, and would be kept by its own task until the collector runs

    def _until_next_look(self) -> float:
        pause = min(self._silence / _LOOKS, _LONGEST_PAUSE_S) if self._silence < self._total else self._total
        return max(0.0, min(pause, min(self._end, self._heard + self._silence) - self._loop.time()))

    async def _is_over(self, process: EngineProcess | None) -> bool:
        if self._silence < self._total:
            await self._look(process)
        return bool(self.missed)

    async def _look(self, process: EngineProcess | None) -> None:
        """Look for a sign of progress."""
        if self._printed != self._log.received:
            self._printed = self._log.received
            self.note_progress()
        moved = await self._bytes_moved(process) if process is not None else None
        if moved is not None and (self._moved is None or abs(moved - self._moved) >= _SIGN_BYTES):
            if self._moved is not None:
                self.note_progress()
            self._moved = moved

    async def _bytes_moved(self, process: EngineProcess) -> int | None:
        try:
            return await run_within(_LONGEST_PAUSE_S, process.bytes_moved())
        except (TimeoutError, EnginehouseError):
            return None
