"""The launches of one host's engines: places, ports, processes, and their records for the next gateway."""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.aio.timeouts import run_within
from enginehouse.config.schema import HostSettings
from enginehouse.config.units import parse_ports
from enginehouse.domain.errors import EnginehouseError, LoadFailed, ShuttingDown
from enginehouse.engines.engine_cache import CacheFolders
from enginehouse.engines.gpus import CUDA_VISIBLE_DEVICES, Gpus
from enginehouse.engines.guards import unguarded_launcher
from enginehouse.engines.host_context import ManagedReplica, decode_placement
from enginehouse.engines.launch_line import fingerprint, is_own_port
from enginehouse.engines.pulled_models import Downloads
from enginehouse.engines.state_file import EngineOwnership, EngineRecord, StateFile
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Launcher, LaunchLine
from enginehouse.interfaces.places import LOOPBACK, EngineNeeds, Place

T = TypeVar("T")

_log = logging.getLogger(__name__)

_ANSWER_S = 60.0
"""The time limit of a launcher's answer, on top of what its call may take."""

MARK = "ENGINEHOUSE_MARK"
"""The environment variable of every engine by which it is found if the record of it is lost."""


_FIRST_PORT, _LAST_PORT = 20_000, 32_767
"""Below the range of ephemeral ports, since an outgoing connection could take such a port before the engine does."""


class Ports:
    """Hands out free loopback ports in turn, so that a port just given back is not used again at once."""

    def __init__(self, first: int = _FIRST_PORT, last: int = _LAST_PORT, taken: set[int] | None = None) -> None:
        self._taken: set[int] = set() if taken is None else taken
        self.limit_to(first, last)

    @property
    def limits(self) -> tuple[int, int]:
        """The first and the last port."""
        return self._range[0], self._range[-1]

    def within(self, first: int, last: int) -> Ports:
        """Other ports of this machine, of which none is handed out while it is taken here."""
        return Ports(first, last, self._taken)

    def limit_to(self, first: int, last: int) -> None:
        """Hand out these ports from now on."""
        self._range = range(first, last + 1)
        # at random, because other gateways on this machine may begin at the same time
        self._next = random.randrange(len(self._range))

    def take(self) -> int:
        """Return a free port that was not handed out. Raises ``LoadFailed`` if there is none."""
        for _ in self._range:
            port = self._range[self._next]
            self._next = (self._next + 1) % len(self._range)
            if port not in self._taken and _is_free(port):
                self._taken.add(port)
                return port
        first, last = self.limits
        raise LoadFailed(f"No free port between {first} and {last} for another engine: widen hosts.*.ports")

    def claim(self, port: int) -> None:
        """Mark ``port`` as taken by an engine that already runs."""
        self._taken.add(port)

    def give_back(self, port: int) -> None:
        """Allow ``port`` to be handed out again."""
        self._taken.discard(port)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


class EngineMark(msgspec.Struct, frozen=True, kw_only=True):
    """Whose engine a process is. ``gateway``: the folder of that gateway. ``record``: without the handle."""

    gateway: str
    engine: str
    record: EngineRecord


class LearnedFacts(NamedTuple):
    """What engines have shown, by replica. They are live.

    ``measured``: the most bytes seen with the launch line of now, on the GPUs or, if it has nothing there, in main
    memory. ``asleep``: the bytes that each sleeping one has kept, if at most half of those. ``reported``: how many
    requests each engine says that it serves at once.
    """

    measured: dict[str, int]
    asleep: dict[str, int]
    reported: dict[str, int]


class Launches:
    """Places and launches the engines of ``host`` through ``launcher``.

    The next gateway finds them by their records in ``state_file`` or, if these are lost, by their marks. ``ports``: for
    engines that the launcher does not place. ``gpus``: those that the engines may use. ``downloads``: of models that
    are not there yet. ``places``: the launcher finds the places of engines. ``learned``: of engines that ran.
    ``strays``: the ends of engines that no replica wants. ``tasks``: what goes on beside orders, until ``close``.
    """

    def __init__(
        self,
        host: str,
        launcher: Launcher,
        ports: Ports,
        state_file: StateFile,
        gpus: Gpus,
        ownership: EngineOwnership,
        caches: CacheFolders,
        downloads: Downloads | None = None,
    ) -> None:
        self.host = host
        self.state_file = state_file
        self.gpus = gpus
        self.ownership = ownership
        self.caches = caches
        self.downloads = downloads
        self.places_gpus = launcher.places_gpus
        self.places = getattr(type(unguarded_launcher(launcher)), "place", None) is not Launcher.place
        self._reads_marks = getattr(type(unguarded_launcher(launcher)), "marks", None) is not Launcher.marks
        self._launcher = launcher
        self._ports = ports
        self.learned = LearnedFacts({}, {}, {})
        self.strays: list[asyncio.Task[None]] = []
        self.tasks = BackgroundTasks()
        self._prepared: asyncio.Task[None] | None = None
        self._is_prepared = False
        self._marked: dict[str, int] = {}
        self._running: dict[EngineProcess, tuple[str, EngineRecord]] = {}

    def reconfigure(self, settings: HostSettings) -> None:
        """Use other ports and GPUs for engines launched from now on."""
        self.gpus.reconfigure(settings)
        self._ports.limit_to(*parse_ports(settings.ports))

    async def prepare(self) -> None:
        """Prepare the launcher, if that has not been done. Raises what the launcher raises; the next call tries again.

        A call that is cancelled leaves the preparation running for others.
        """
        if self._is_prepared:
            return
        if self._prepared is None or self._prepared.done():
            self._prepared = asyncio.ensure_future(self._launcher.prepare(self.state_file.logs))
            self._prepared.add_done_callback(self._note_prepared)
        await asyncio.shield(self._prepared)

    def _note_prepared(self, done: asyncio.Future[None]) -> None:
        self._is_prepared = not done.cancelled() and done.exception() is None

    def close(self) -> None:
        """End all that goes on beside orders, such as a preparation that still waits."""
        self.tasks.cancel()
        self.gpus.close()
        if self._prepared is not None:
            self._prepared.cancel()

    # --- places

    def needs(self, managed: ManagedReplica) -> EngineNeeds:
        """What the engine of ``managed`` needs of its place. Its options have been checked before."""
        model = managed.model
        return EngineNeeds(
            gpus=model.gpus if isinstance(model.gpus, int) else 0,
            memory=model.memory,
            ports=self._ports.limits,
            options=decode_placement(self._launcher, managed.placement),
        )

    async def no_room(self, needs: EngineNeeds) -> str:
        """Why no machine could hold such an engine even if no other one ran; empty if one could."""
        await _answer(self.prepare())
        return await _answer(self._launcher.no_room(needs))

    async def why_not(self, line: LaunchLine, files: Sequence[str]) -> str:
        """Why the engine cannot be launched with ``line`` and its ``files``; empty if it may."""
        return await _answer(self._launcher.why_not(line, files))

    async def find_place(self, name: str, needs: EngineNeeds, timeout: float, waits: Callable[[str], None]) -> Place:
        """A place for the engine ``name``. Calls ``waits`` with the reason why there is none yet.

        Raises ``TimeoutError`` after ``timeout`` seconds, 0 for no limit, what the launcher raises, and ``LoadFailed``
        if all ports are taken.
        """
        found: Place | None = None
        if self.places or not self._is_prepared:
            found = await run_within(timeout or None, self._place(name, needs, waits))
        # not in the task: a start that is cancelled now would keep the port
        return found or Place(port=self._ports.take())

    async def _place(self, name: str, needs: EngineNeeds, waits: Callable[[str], None]) -> Place | None:
        """Ask the launcher for a place. It is recorded meanwhile, because the gateway may die before the launch."""
        await self.prepare()
        if not self.places:
            return None
        begun = EngineRecord(host=self.host, port=0, fingerprint="", handle={})
        self.state_file.put(name, begun)
        try:
            return await self._launcher.place(name, needs, waits)
        finally:
            self.state_file.remove(name, begun)

    def claim(self, place: Place) -> None:
        """Note that an engine of an earlier gateway runs in ``place``."""
        if is_own_port(place):
            self._ports.claim(place.port)

    def vacated(self, place: Place) -> None:
        """Note that the engine in ``place`` has ended."""
        if is_own_port(place):
            self._ports.give_back(place.port)

    async def release(self, name: str, place: Place) -> None:
        """Free the place of ``name``, in which no engine was launched."""
        self.vacated(place)
        if is_own_port(place):
            return
        try:
            await _answer(self._launcher.release(place))
        except EnginehouseError as error:
            _log.error("The resources of %s may still be in use: %s", name, error)

    # --- engines

    async def recover(self) -> None:
        """Record the engines of this gateway that still run without a record, as their marks show."""
        if not self._reads_marks:  # to prepare its launcher may take long
            return
        try:
            await _answer(self.prepare())
            marks = await _answer(self._launcher.marks(MARK))
        except EnginehouseError as error:
            _log.error("Host '%s' cannot be asked for engines that still run: %s", self.host, error)
            return
        for pid, mark in _readable(marks):
            mine = mark.gateway == str(self.state_file.folder) and mark.record.host == self.host
            if mine and mark.engine not in self.state_file.records:
                _log.warning("%s runs as process %d without a record", mark.engine, pid)
                self._marked[mark.engine] = pid
                self.state_file.put(mark.engine, mark.record)

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        """Start an engine. It is recorded before and after the launch, because the gateway may die in between."""
        gpus = line.environment.get(CUDA_VISIBLE_DEVICES, "")
        begun = EngineRecord(
            host=self.host,
            port=line.port,
            fingerprint=fingerprint(line),
            handle={},
            gpus=gpus,
            placed=line.place,
        )
        self.state_file.put(name, begun)
        mark = msgspec.json.encode(EngineMark(gateway=str(self.state_file.folder), engine=name, record=begun)).decode()
        try:
            line = msgspec.structs.replace(line, environment={**line.environment, MARK: mark})
            process = await self._launcher.launch(name, line, output)
        except BaseException:
            self.state_file.remove(name, begun)
            raise
        self._put(process, name, begun)
        return process

    async def adopt(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess | None:
        """Adopt a recorded engine. Its record is removed if it does not run, or if the launcher fails to adopt it."""
        record = self.state_file.records[name]
        try:
            await _answer(self.prepare())
            process = await _answer(self._launcher.adopt(name, line, record.handle, output))
        except (Exception, SystemExit):
            launcher = type(unguarded_launcher(self._launcher))
            text = "The launcher %s.%s of host '%s' failed to take over %s, which may still run"
            _log.exception(text, launcher.__module__, launcher.__qualname__, self.host, name)
            process = None
        if process is None:
            self.state_file.remove(name, record)
            if (pid := self._marked.pop(name, None)) is not None:
                _log.warning("%s could not be taken over: see whether its process %d still runs", name, pid)
            return None
        self._put(process, name, record)
        return process

    async def stop(self, process: EngineProcess, timeout: float) -> None:
        """Stop an engine, as one act. Does nothing once it is another gateway's. A failure is logged."""
        with suppress(ShuttingDown):
            async with self.ownership.act():
                await self.end(process, timeout)

    async def end(self, process: EngineProcess, timeout: float) -> None:
        """Stop an engine, as part of an act. A failure is logged."""
        try:
            await _answer(process.stop(timeout), timeout)
            self.ended(process)
        except EnginehouseError as error:
            name, _ = self._running.get(process, (process.address, None))
            _log.error("%s may still run: %s", name, error)

    def ended(self, process: EngineProcess) -> None:
        """Remove the record of an engine that has ended."""
        if (recorded := self._running.pop(process, None)) is not None:
            self.state_file.remove(*recorded)

    def _put(self, process: EngineProcess, name: str, before: EngineRecord) -> None:
        record = msgspec.structs.replace(before, handle=dict(process.handle))
        self._running[process] = (name, record)
        self.state_file.put(name, record)


async def _answer(call: Coroutine[Any, Any, T], takes: float = 0.0) -> T:
    """What a launcher's ``call``, which itself ``takes`` so many seconds at most, returns.

    Raises ``LoadFailed`` if it does not return.
    """
    try:
        return await run_within(takes + _ANSWER_S, call)
    except TimeoutError:
        raise LoadFailed(f"its launcher has not answered for {takes + _ANSWER_S:g} s") from None


def _readable(marks: Mapping[int, str]) -> Iterator[tuple[int, EngineMark]]:
    """The marks that can be read, by process id."""
    for pid, text in marks.items():
        try:
            yield pid, msgspec.json.decode(text, type=EngineMark)
        except (ValueError, RecursionError):  # noqa: PERF203 - one unreadable mark must not hide the others
            continue
