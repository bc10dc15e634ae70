"""The time limits of one start of an engine, and the run that it begins."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from math import inf
from typing import Any, TypeVar

from enginehouse.aio.timeouts import leave, run_within
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import EnginehouseError
from enginehouse.engines.probing import ProbedEngine
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing

T = TypeVar("T")

_LONGEST_START_S = 120
_LONGEST_WATCHED_START_S = 24 * 3600
_LOOKS = 10
"""Looks for a sign of progress within the longest silence."""
_LONGEST_PAUSE_S = 5.0
_SIGN_BYTES = 1 << 20
"""An engine that hangs still answers health checks: the few bytes of these are no progress."""

NOWHERE = Place(port=0)


def longest_start(model: ModelSettings) -> float:
    """The time limit for starting ``model``. A start that must show progress needs no tight one."""
    if model.start_timeout is not None:
        return model.start_timeout
    return _LONGEST_START_S if model.start_silence is None else _LONGEST_WATCHED_START_S


def longest_silence(model: ModelSettings) -> float:
    """The longest time of a start without a sign of progress."""
    return longest_start(model) if model.start_silence is None else model.start_silence


class EngineRun:
    """One life of an engine, as ``process`` in ``place``. ``client`` speaks with it. ``exited``: its end.

    ``is_warm``: it was ready, so that its prefix cache is to be kept, if any is. ``used``: ends when an earlier gateway
    no longer uses it; without it, none does.
    """

    def __init__(
        self, process: EngineProcess, client: ProbedEngine, place: Place, used: asyncio.Future[None] | None = None
    ) -> None:
        self.process = process
        self.client = client
        self.exited = asyncio.ensure_future(process.exited())
        self.place = place
        self.is_warm = False
        self._used = used

    @property
    def is_shared(self) -> bool:
        """Whether an earlier gateway still uses it."""
        return self._used is not None and not self._used.done()

    async def freed(self) -> None:
        """Return when it is not shared any more, or when it has exited."""
        if self._used is not None:
            ends: set[asyncio.Future[Any]] = {self._used, self.exited}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


class StartLimits:
    """Limits one start, from its first ``run`` on: by then it has its files and its place.

    Signs of progress are output in ``log``, bytes that the engine moves, and a new problem or phase.
    """

    def __init__(self, model: ModelSettings, log: LogRing) -> None:
        self._loop = asyncio.get_running_loop()
        self._total = longest_start(model)
        self._silence = self._total if model.start_silence is None else model.start_silence
        self._pause = min(self._silence / _LOOKS, _LONGEST_PAUSE_S) if self._silence < self._total else self._total
        self._log = log
        self._heard = self._end = inf
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

    async def run(self, work: Coroutine[Any, Any, T], of: EngineRun | None = None) -> T | None:
        """Run a part of the start, ``of`` an engine that is launched already. ``None`` if that exits first.

        Raises ``TimeoutError`` once a limit is missed. Does not wait for work that resists its cancellation.
        """
        task = asyncio.ensure_future(work)
        ends: set[asyncio.Future[Any]] = {task} if of is None else {task, of.exited}
        self._heard = now = self._loop.time()
        if self._end == inf:
            self._end, self._printed = now + self._total, self._log.received
        try:
            while True:
                until_look = min(self._pause, min(self._end, self._heard + self._silence) - now)
                done, _ = await asyncio.wait(ends, timeout=max(0.0, until_look), return_when=asyncio.FIRST_COMPLETED)
                if done and (of is None or not of.exited.done()):
                    return task.result()
                if done:
                    leave(task)
                    return None
                if self._silence < self._total:
                    await self._look(of)
                if self.missed:
                    raise TimeoutError
                now = self._loop.time()
        except BaseException:
            leave(task)
            raise
        finally:
            del task, ends  # a failure refers to this frame, and would be kept by its own task until the collector runs

    async def _look(self, of: EngineRun | None) -> None:
        """Look for a sign of progress."""
        if self._printed != self._log.received:
            self._printed = self._log.received
            self.note_progress()
        try:
            moved = None if of is None else await run_within(_LONGEST_PAUSE_S, of.process.bytes_moved())
        except (TimeoutError, EnginehouseError):
            return
        if moved is not None and (self._moved is None or abs(moved - self._moved) >= _SIGN_BYTES):
            if self._moved is not None:
                self.note_progress()
            self._moved = moved
