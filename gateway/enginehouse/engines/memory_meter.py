"""Measures the memory of engines."""

from __future__ import annotations

import logging

from enginehouse.aio.timeouts import run_within
from enginehouse.engines.engine import Engine
from enginehouse.engines.host_gpus import HostGpus
from enginehouse.engines.state_file import Footprints

_log = logging.getLogger(__name__)

_TIMEOUT_S = 5.0


class MemoryMeter:
    """Measures engines: on the GPUs of their host, or in main memory if they have nothing there.

    ``measured`` is live: the most bytes seen for each replica since its last ``reset``. ``asleep``: the bytes that each
    sleeping one has kept. ``footprints`` keeps the first for the next gateway.
    """

    def __init__(self, gpus: HostGpus, footprints: Footprints) -> None:
        self.measured: dict[str, int] = {}
        self.asleep: dict[str, int] = {}
        self._gpus = gpus
        self._footprints = footprints

    def reset(self, replica: str) -> None:
        """Drop the measured sizes."""
        self.measured.pop(replica, None)
        self.asleep.pop(replica, None)

    def recall(self, replica: str, engine: Engine) -> None:
        """Take the size that an earlier gateway measured for an engine with the same launch line."""
        key = engine.footprint_key()
        if key is not None and (known := self._footprints.known.get(key)):
            self.measured[replica] = known

    async def measure(self, replica: str, engine: Engine) -> None:
        """Measure the engine of ``replica`` once. A failure is logged."""
        version = engine.version
        memory = await self._read(replica, engine)
        if memory and version == engine.version and memory > self.measured.get(replica, 0):
            # the most ever: caches grow with requests, and a swap must find room for all of it
            self.measured[replica] = memory
            self._keep(memory, engine)

    async def measure_asleep(self, replica: str, engine: Engine) -> None:
        """Measure the memory that the sleeping engine of ``replica`` still holds. A failure is logged."""
        version = engine.version
        memory = await self._read(replica, engine)
        if memory is not None and version == engine.version:
            self.asleep[replica] = memory

    def frees_by_sleep(self, replica: str) -> bool:
        """Whether the sleeping engine of ``replica`` was measured to have freed half of its memory at least."""
        kept, before = self.asleep.get(replica), self.measured.get(replica)
        frees = kept is not None and before is not None and kept <= before / 2
        if not frees:
            _log.info("%s keeps %s of %s bytes asleep: it is stopped to make room", replica, kept, before)
        return frees

    async def _read(self, replica: str, engine: Engine) -> int | None:
        try:
            return await run_within(_TIMEOUT_S, self._taken(replica, engine))
        except Exception as error:
            _log.warning("The memory of %s could not be measured: %r", replica, error)
            return None

    async def _taken(self, replica: str, engine: Engine) -> int | None:
        if self._gpus.now:
            on_gpus = await self._gpus.used_by(await engine.processes())
            if on_gpus or (engine.is_asleep and replica in self.measured):
                return on_gpus
        return await engine.memory()

    def _keep(self, memory: int, engine: Engine) -> None:
        key = engine.footprint_key()
        if key is not None:
            self._footprints.put(key, memory)
