"""Records of the engines of one host, by which the next gateway finds them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from enginehouse.engines.guards import unguarded_launcher
from enginehouse.engines.host_gpus import CUDA_VISIBLE_DEVICES
from enginehouse.engines.host_replicas import ManagedReplica
from enginehouse.engines.launch_line import fingerprint
from enginehouse.engines.placements import decode_placement
from enginehouse.engines.state_file import EngineRecord, StateFile
from enginehouse.interfaces.launchers import EngineOutput, EngineProcess, Launcher, LaunchLine
from enginehouse.interfaces.places import EngineNeeds, Place, PlacementOptions

_log = logging.getLogger(__name__)

MARK = "ENGINEHOUSE_MARK"
"""The environment variable of every engine by which it is found if the record of it is lost."""


class EngineMark(msgspec.Struct, frozen=True, kw_only=True):
    """Whose engine a process is. ``gateway``: the folder of that gateway. ``record``: without the handle."""

    gateway: str
    engine: str
    record: EngineRecord


class EngineRecords:
    """Keeps ``state_file`` up to date on the engines that ``launcher`` starts on ``host``. Every engine gets a mark."""

    def __init__(self, host: str, launcher: Launcher, state_file: StateFile) -> None:
        self.places_gpus = launcher.places_gpus
        self._reads_marks = getattr(type(unguarded_launcher(launcher)), "marks", None) is not Launcher.marks
        self._host = host
        self._launcher = launcher
        self._prepared: asyncio.Task[None] | None = None
        self._state_file = state_file
        self._marked: dict[str, int] = {}
        self._running: dict[EngineProcess, tuple[str, EngineRecord]] = {}

    async def prepare(self) -> None:
        """Prepare the launcher, if that has not been done. Raises what the launcher raises; the next call tries again.

        A call that is cancelled leaves the preparation running for others.
        """
        before = self._prepared
        if before is None or (before.done() and (before.cancelled() or before.exception() is not None)):
            self._prepared = before = asyncio.ensure_future(self._launcher.prepare(self._state_file.logs))
            before.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(before)

    def close(self) -> None:
        """Give up a preparation that still waits."""
        if self._prepared is not None:
            self._prepared.cancel()

    def placement(self, managed: ManagedReplica) -> PlacementOptions:
        """The configured options of the place of ``managed``, which has been checked before."""
        return decode_placement(self._launcher, managed.placement)

    async def place(self, name: str, needs: EngineNeeds, waits: Callable[[str], None]) -> Place | None:
        """Ask the launcher for a place. It is recorded meanwhile, because the gateway may die before the launch."""
        await self.prepare()
        begun = EngineRecord(host=self._host, port=0, fingerprint="", handle={})
        self._state_file.put(name, begun)
        try:
            return await self._launcher.place(name, needs, waits)
        finally:
            self._state_file.remove(name, begun)

    async def release(self, place: Place) -> None:
        """Let the launcher free a place without an engine."""
        await self._launcher.release(place)

    async def why_not(self, line: LaunchLine, files: Sequence[str]) -> str:
        """Why the engine of ``line`` cannot start in its place; empty if it may."""
        return await self._launcher.why_not(line, files)

    async def recover(self) -> None:
        """Record the engines of this gateway that still run without a record, as their marks show."""
        if not self._reads_marks:  # to prepare its launcher may take long
            return
        await self.prepare()
        for pid, mark in _readable(await self._launcher.marks(MARK)):
            mine = mark.gateway == str(self._state_file.folder) and mark.record.host == self._host
            if mine and mark.engine not in self._state_file.records:
                _log.warning("%s runs as process %d without a record", mark.engine, pid)
                self._marked[mark.engine] = pid
                self._state_file.put(mark.engine, mark.record)

    async def launch(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess:
        """Start an engine. It is recorded before and after the launch, because the gateway may die in between."""
        gpus = line.environment.get(CUDA_VISIBLE_DEVICES, "")
        begun = EngineRecord(
            host=self._host,
            port=line.port,
            fingerprint=fingerprint(line),
            handle={},
            gpus=gpus,
            placed=line.place,
        )
        self._state_file.put(name, begun)
        mark = msgspec.json.encode(EngineMark(gateway=str(self._state_file.folder), engine=name, record=begun)).decode()
        try:
            line = msgspec.structs.replace(line, environment={**line.environment, MARK: mark})
            process = await self._launcher.launch(name, line, output)
        except BaseException:
            self._state_file.remove(name, begun)
            raise
        self._put(process, name, begun)
        return process

    async def adopt(self, name: str, line: LaunchLine, output: EngineOutput) -> EngineProcess | None:
        """Adopt a recorded engine. Its record is removed if it does not run, or if the launcher fails to adopt it."""
        record = self._state_file.records[name]
        try:
            await self.prepare()
            process = await self._launcher.adopt(name, line, record.handle, output)
        except (Exception, SystemExit):
            launcher = type(unguarded_launcher(self._launcher))
            text = "The launcher %s.%s of host '%s' failed to take over %s, which may still run"
            _log.exception(text, launcher.__module__, launcher.__qualname__, self._host, name)
            process = None
        if process is None:
            self._state_file.remove(name, record)
            if (pid := self._marked.pop(name, None)) is not None:
                _log.warning("%s could not be taken over: see whether its process %d still runs", name, pid)
            return None
        self._put(process, name, record)
        return process

    def ended(self, process: EngineProcess) -> None:
        """Remove the record of an engine that has ended."""
        if (recorded := self._running.pop(process, None)) is not None:
            self._state_file.remove(*recorded)

    def _put(self, process: EngineProcess, name: str, before: EngineRecord) -> None:
        record = msgspec.structs.replace(before, handle=dict(process.handle))
        self._running[process] = (name, record)
        self._state_file.put(name, record)


def _readable(marks: Mapping[int, str]) -> Iterator[tuple[int, EngineMark]]:
    """The marks that can be read, by process id."""
    for pid, text in marks.items():
        try:
            yield pid, msgspec.json.decode(text, type=EngineMark)
        except (ValueError, RecursionError):  # noqa: PERF203 - one unreadable mark must not hide the others
            continue
