"""What a host has learned of its engines: how much memory they take, and how many requests at once."""

from __future__ import annotations

import logging

from enginehouse.aio.timeouts import run_within
from enginehouse.engines.gpus import Gpus
from enginehouse.engines.state_file import Footprints
from enginehouse.interfaces.launchers import EngineProcess

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0


class LearnedFacts:
    """Facts of the replicas of one host, which ``gpus`` and engines tell. They are live.

    ``measured``: the most bytes seen for each replica since its last ``reset``, on the GPUs or, if it has nothing
    there, in main memory. ``asleep``: the bytes that each sleeping one has kept. ``reported``: how many requests each
    engine says that it serves at once. ``footprints`` keeps the first for the next gateway, by the launch line.
    """

    def __init__(self, gpus: Gpus, footprints: Footprints) -> None:
        self.measured: dict[str, int] = {}
        self.asleep: dict[str, int] = {}
        self.reported: dict[str, int] = {}
        self._gpus = gpus
        self._footprints = footprints
        self._resets: dict[str, object] = {}

    def reset(self, replica: str, footprint: str | None = None) -> None:
        """Drop what is known, but for what an earlier gateway measured with the same launch line."""
        self._resets[replica] = object()
        for facts in (self.measured, self.asleep, self.reported):
            facts.pop(replica, None)
        if footprint is not None and (known := self._footprints.known.get(footprint)):
            self.measured[replica] = known

    def expect(self, replica: str, footprint: str | None, estimate: int) -> None:
        """Drop what was measured with other files of the model, which told another ``estimate`` of its bytes."""
        if footprint is not None and self._footprints.forget_others(footprint, estimate):
            self.measured.pop(replica, None)

    def remove(self, replica: str) -> None:
        """Drop what is known of a replica that is removed."""
        self.reset(replica)
        del self._resets[replica]

    def report(self, replica: str, limit: int | None) -> None:
        """Take the number of requests that an engine says that it serves at once."""
        self.reported.pop(replica, None)
        if limit:
            self.reported[replica] = limit

    async def measure(self, replica: str, process: EngineProcess, footprint: str | None) -> None:
        """Measure an engine that is awake. A failure is logged."""
        since = self._resets.get(replica)
        memory = await self._read(replica, process)
        if memory and since is self._resets.get(replica) and memory > self.measured.get(replica, 0):
            # the most ever: caches grow with requests, and a swap must find room for all of it
            self.measured[replica] = memory
            if footprint is not None:
                self._footprints.put(footprint, memory)

    async def frees_by_sleep(self, replica: str, process: EngineProcess) -> bool:
        """Measure an engine that sleeps. Whether it has freed half of its memory at least."""
        since = self._resets.get(replica)
        memory = await self._read(replica, process, asleep=True)
        if memory is not None and since is self._resets.get(replica):
            self.asleep[replica] = memory
        kept, before = self.asleep.get(replica), self.measured.get(replica)
        return kept is not None and before is not None and kept <= before / 2

    async def _read(self, replica: str, process: EngineProcess, *, asleep: bool = False) -> int | None:
        work = self._taken(replica, process, asleep) if self._gpus.now else process.memory()
        try:
            return await run_within(_TIMEOUT_S, work)
        except Exception as error:
            _log.warning("The memory of %s could not be measured: %r", replica, error)
            return None

    async def _taken(self, replica: str, process: EngineProcess, asleep: bool) -> int | None:
        on_gpus = await self._gpus.used_by(await process.processes())
        if on_gpus or (asleep and replica in self.measured):
            return on_gpus
        return await process.memory()
