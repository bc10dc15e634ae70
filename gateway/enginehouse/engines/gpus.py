"""The GPUs of one host, and which engine gets which of them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from enginehouse.aio.slow_work import run_slowly
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.config.schema import HostSettings
from enginehouse.domain.errors import ConfigError, PluginFailed
from enginehouse.domain.gpu import Gpu
from enginehouse.interfaces.launchers import Launcher

_log = logging.getLogger(__name__)

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_REFRESH_S = 5.0
_READ_S = 5.0
_PAUSE_S = 0.1
_FREED_WITHIN_S = 10.0
_SOON_S = 10.0
_SECOND_TRIES_S = (0.5, 1.0, 2.0, 4.0)
"""The longest waits before second tries, within so many seconds of the end of another engine."""
_STILL_BYTES = 16 << 20
"""Memory that becomes free more slowly than this within a pause is not that of an engine that has just ended."""


class HostGpu(NamedTuple):
    """A GPU of a host, and the replicas whose engines use it."""

    host: str
    gpu: Gpu
    replicas: Sequence[str]


class Gpus:
    """Knows the GPUs of a host, which engine has which of them, and when the memory of ended engines is free.

    ``read`` is ``Launcher.gpus``; ``None`` if nobody can read them. ``allowed``: the numbers that the host may use,
    ``None`` for all. ``now``: the last reading of them.
    """

    def __init__(self, read: Callable[[], Sequence[Gpu]] | None = None, allowed: Sequence[int] | None = None) -> None:
        self._read = read
        self.allowed = allowed
        self.now: Sequence[Gpu] = ()
        self._all: Sequence[Gpu] = ()
        self._assigned: dict[str, Sequence[int]] = {}
        self._reading: asyncio.Future[Sequence[Gpu]] | None = None
        self._ended: set[int] = set()
        self._last_end: float | None = None
        self._tasks = BackgroundTasks()

    def reconfigure(self, settings: HostSettings) -> None:
        """Use other GPUs for engines launched from now on."""
        self.allowed = _allowed(settings)
        self._take(self._all)

    def begin(self) -> None:
        """Begin to read regularly, if there are GPUs."""
        if self._read is not None:
            self._tasks.start(self._keep_reading())

    def close(self) -> None:
        self._tasks.cancel()

    def total(self, settings: HostSettings) -> int | None:
        """The bytes of the GPUs that ``settings`` list; ``None`` if they list none, or they are unknown."""
        allowed = _allowed(settings)
        if allowed is None or self._read is None:
            return None
        if not self._all:
            with suppress(PluginFailed):  # logged
                self._take(self._read())
        return sum(gpu.total for gpu in self._all if gpu.index in allowed) or None

    def status(self, host: str) -> Sequence[HostGpu]:
        """The last reading."""
        assigned = self._assigned.items()
        return [HostGpu(host, gpu, [each for each, gpus in assigned if gpu.index in gpus]) for gpu in self.now]

    async def refresh(self) -> None:
        """Read the GPUs. If that fails, hangs, or finds none any more, what was read last stays."""
        if self._read is None:
            return
        if self._reading is None or self._reading.done():  # one that hangs must not hold ever more threads
            self._reading = asyncio.ensure_future(run_slowly(self._read))
        done, _ = await asyncio.wait({self._reading}, timeout=_READ_S)
        with suppress(PluginFailed):  # logged
            for reading in done:
                self._take(reading.result() or self._all)

    async def assign(self, replica: str, wanted: int | Sequence[int] | None) -> str:
        """Choose the GPUs of an engine that is launched now. Returns its ``CUDA_VISIBLE_DEVICES``, empty for all.

        Raises ``ConfigError`` if there are not enough.
        """
        self._assigned.pop(replica, None)
        if isinstance(wanted, int):
            await self.refresh()
            chosen: Sequence[int] | None = pick_gpus(wanted, self.allowed, self.now, self._assigned.values())
        else:
            chosen = self.allowed if wanted is None else wanted
        if chosen is None:
            return ""
        self._assigned[replica] = chosen
        return ",".join(map(str, chosen))

    def adopt(self, replica: str, gpus: str) -> None:
        """Note the GPUs of an engine that runs already: those with numbers, as ``env`` may name others."""
        if gpus:
            self._assigned[replica] = [int(each) for each in gpus.split(",") if each.isdecimal()]

    def release(self, replica: str) -> None:
        """Note that the engine of ``replica`` has ended."""
        self._assigned.pop(replica, None)

    def ended(self, processes: Collection[int]) -> None:
        """Note that these processes of an engine end: their memory may become free a little later."""
        self._ended.update(processes)

    def note_end(self) -> None:
        """Note that an engine has ended or gone to sleep."""
        self._last_end = asyncio.get_running_loop().time()

    def second_tries(self, began: float) -> Iterator[float]:
        """The longest waits before a start that ``began`` then and found too little memory is tried again."""
        ended_lately = self._last_end is not None and began - self._last_end <= _SOON_S
        return iter(_SECOND_TRIES_S if ended_lately else ())

    async def used_by(self, processes: Collection[int]) -> int:
        """The bytes that these processes hold on the GPUs."""
        if not self.now or not processes:
            return 0
        await self.refresh()
        return sum(size for gpu in self.now for process, size in gpu.processes.items() if process in processes)

    async def until_free(self, replica: str, needed: int | None) -> None:
        """Wait until the memory of ended engines is free.

        That is when ``needed`` bytes are free on the GPUs of ``replica``, or else when nothing more becomes free.
        """
        if not self._ended or not self.now:
            return
        ended, self._ended = self._ended, set()
        loop = asyncio.get_running_loop()
        end, before = loop.time() + _FREED_WITHIN_S, -1
        while loop.time() < end:
            await self.refresh()
            gpus = self._gpus_of(replica)
            free = sum(gpu.free for gpu in gpus)
            held = any(process in ended for gpu in gpus for process in gpu.processes)
            still = before >= 0 and free - before < _STILL_BYTES
            if not held and (still or (needed is not None and free >= needed)):
                return
            before = free
            await asyncio.sleep(_PAUSE_S)
        _log.warning("The memory of ended engines is not free after %g s; %s starts anyway", _FREED_WITHIN_S, replica)

    async def until_room(self, replica: str, needed: int | None, within: float) -> None:
        """Wait until ``needed`` bytes are free on the GPUs of ``replica``; ``within`` seconds if that is not known."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        while (left := end - loop.time()) > 0:
            await asyncio.sleep(min(left, _PAUSE_S) if self.now and needed is not None else left)
            await self.refresh()
            if self.now and needed is not None and sum(gpu.free for gpu in self._gpus_of(replica)) >= needed:
                return

    def _gpus_of(self, replica: str) -> Sequence[Gpu]:
        own = self._assigned.get(replica)
        return [gpu for gpu in self.now if own is None or gpu.index in own]

    async def _keep_reading(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(_REFRESH_S)

    def _take(self, read: Sequence[Gpu]) -> None:
        self._all, allowed = read, self.allowed
        self.now = [gpu for gpu in read if allowed is None or gpu.index in allowed]


def host_gpus(settings: HostSettings, launcher: Launcher) -> Gpus:
    """The GPUs of a host. Their free memory is known only if its ``launcher`` tells it."""
    return Gpus(launcher.gpus if launcher.reads_gpus else None, _allowed(settings))


def _allowed(settings: HostSettings) -> Sequence[int] | None:
    return settings.gpus if isinstance(settings.gpus, list) else None


def pick_gpus(
    wanted: int, allowed: Sequence[int] | None, gpus: Sequence[Gpu], taken: Iterable[Sequence[int]]
) -> Sequence[int]:
    """The numbers of so many GPUs for an engine, among those ``allowed`` on the host; ``None`` allows every one.

    ``gpus`` are the known ones, ``taken`` those of each running engine. Those with the fewest engines come first, then
    those with the most free memory. Raises ``ConfigError`` if there are not enough.
    """
    known = {gpu.index: gpu for gpu in gpus}
    choice = allowed if allowed is not None else sorted(known)
    if wanted > len(choice):
        raise ConfigError(
            f"{wanted} GPUs are wanted, and the host has {len(choice)}",
            remedy="lower models.*.gpus, or list the GPUs in hosts.*.gpus"
            + ("" if known else "; to find them by itself, the gateway needs `pip install enginehouse[gpu]`"),
        )
    engines = Counter(gpu for each in taken for gpu in each)
    ranked = sorted(choice, key=lambda each: (engines[each], -(known[each].free if each in known else 0), each))
    return sorted(ranked[:wanted])
