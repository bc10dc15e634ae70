"""What the engines of one replica have shown: how much memory they take, and how many requests they serve at once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import EnginehouseError
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.launch_line import ModelLaunch
from enginehouse.engines.launches import Launches
from enginehouse.engines.start import EngineRun
from enginehouse.interfaces.launchers import EngineProcess

T = TypeVar("T")
_log = logging.getLogger(__name__)

_QUESTION_S = 5.0
"""The time limit of a question about a ready engine that may stay without an answer."""


class MeasuredFacts:
    """Measures the engines of a replica, and asks them, for the facts that its host and the next gateway keep of them.

    ``version`` grows when engines launched so far do not fit the settings any more. A question that fails is logged.
    """

    def __init__(self, launches: Launches) -> None:
        self.version = 0
        self._managed: ManagedReplica
        self._line: ModelLaunch
        self._learned = launches.learned
        self._gpus = launches.gpus
        self._footprints = launches.state_file.footprints

    # --- what is known

    def reconfigure(self, managed: ManagedReplica, line: ModelLaunch) -> None:
        """Use these settings, and the launch line of them, from now on."""
        self._managed, self._line = managed, line

    def begin_anew(self) -> None:
        """Drop what is known of engines launched so far, but for what an earlier gateway has measured."""
        self.forget()
        if (known := self._footprints.known.get(self._footprint())) is not None:
            self._learned.measured[self._managed.replica] = known

    def forget(self) -> None:
        """Drop what is known of engines launched so far."""
        self.version += 1
        for facts in self._learned:
            facts.pop(self._managed.replica, None)

    def expect(self, estimate: int) -> None:
        """Drop what was measured with other files of the model, which told another ``estimate`` of its bytes."""
        footprint = self._footprint()
        if footprint and self._footprints.forget_others(footprint, estimate):
            self._learned.measured.pop(self._managed.replica, None)

    def report(self, limit: int | None) -> None:
        """Take the number of requests that the engine says that it serves at once."""
        self._learned.reported.pop(self._managed.replica, None)
        if limit:
            self._learned.reported[self._managed.replica] = limit

    def note_memory(self, memory: int) -> None:
        """Take the ``memory`` of a ready engine."""
        measured, replica = self._learned.measured, self._managed.replica
        if memory > measured.get(replica, 0):
            # the most ever: caches grow with requests, and a swap must find room for all of it
            measured[replica] = memory
            if footprint := self._footprint():
                self._footprints.put(footprint, memory)

    def note_asleep(self, memory: int) -> bool:
        """Take the ``memory`` of a sleeping engine if it has freed half of it at least. Whether it has."""
        replica = self._managed.replica
        before = self._learned.measured.get(replica)
        if before is None or memory > before / 2:
            return False
        self._learned.asleep[replica] = memory
        return True

    def _footprint(self) -> str:
        """The name under which the memory of an engine with this launch line is known; empty if it has none."""
        try:
            return "" if self._managed.server is not None else f"{self._managed.model_name} {self._line.fingerprint}"
        except EnginehouseError:
            return ""

    # --- questions

    async def concurrency(self, run: EngineRun) -> int | None:
        """The number of requests that it reports to serve at once; ``None`` if it reports none, or is not asked."""
        if self._managed.model.concurrency:
            return None
        ask = partial(self._managed.driver.figures.concurrency, run.client)
        return await self._asked(ask, "%s does not report its concurrency: %r", logging.DEBUG)

    async def memory(self, run: EngineRun, *, is_asleep: bool = False) -> int | None:
        """The bytes that it holds, on GPUs if it has any there; ``None`` if they are unknown."""
        ask = partial(self._held, run.process, is_asleep) if self._gpus.now else run.process.memory
        return await self._asked(ask, "The memory of %s could not be measured: %r")

    async def note_end(self, run: EngineRun) -> None:
        """Have the GPUs know which memory an engine frees that is about to end."""
        if processes := await self._asked(run.process.processes, "The processes of %s are not known: %r"):
            self._gpus.ended(processes)

    async def _held(self, process: EngineProcess, is_asleep: bool) -> int | None:
        on_gpus = await self._gpus.used_by(await process.processes())
        if on_gpus or (is_asleep and self._managed.replica in self._learned.measured):
            return on_gpus
        return await process.memory()

    async def _asked(
        self, ask: Callable[[], Coroutine[Any, Any, T]], unknown: str, level: int = logging.WARNING
    ) -> T | None:
        """What ``ask`` answers about a ready engine; ``None`` if it fails, which is logged as ``unknown``."""
        try:
            return await run_within(_QUESTION_S, ask())
        except Exception as error:
            _log.log(level, unknown, self._managed.replica, error)
            return None
