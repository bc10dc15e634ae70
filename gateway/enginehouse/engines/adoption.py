"""Takes over engines that an earlier gateway left running."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.engine import Engine
from enginehouse.engines.host_launcher import HostLauncher
from enginehouse.engines.launch_line import fingerprint
from enginehouse.engines.state_file import EngineRecord
from enginehouse.interfaces.launchers import EngineProcess, LaunchLine
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_STRAY_STOP_S = 10.0
_FIRST_LOOK_S = 2.0
"""The time for which a starting gateway waits for adopted engines. Slower ones become ready later."""


class Adoption:
    """Takes over the engines of one host that run already.

    ``engines``: by replica; live. ``examine``: called with an engine that is ready. ``on_exited``: called for a
    replica whose engine could not be taken over. ``before``: what must end before a replica may start, such as its
    adoption. ``strays``: the ends of engines that no replica wants.
    """

    def __init__(
        self,
        launcher: HostLauncher,
        engines: Mapping[str, Engine],
        tasks: BackgroundTasks,
        examine: Callable[[str, Engine], Awaitable[None]],
        on_exited: Callable[[str], None],
    ) -> None:
        self._launcher = launcher
        self._state_file = launcher.state_file
        self._engines = engines
        self._tasks = tasks
        self._examine = examine
        self._on_exited = on_exited
        self.before: dict[str, asyncio.Task[None]] = {}
        self.strays: list[asyncio.Task[None]] = []

    async def open(self, drained: asyncio.Future[None] | None) -> None:
        """Take over what an earlier gateway left running, or end it: at once, or when that gateway has ``drained``."""
        host, state_file = self._launcher.host, self._state_file
        if state_file.is_lost:
            try:
                await self._launcher.recover()
            except EnginehouseError as error:
                _log.error("Host '%s' cannot be asked for engines that still run: %s", host, error)
        records = [(name, record) for name, record in state_file.records.items() if record.host == host]
        await asyncio.gather(*(self._take_over(name, record, drained) for name, record in records))
        if self.before:
            await asyncio.wait(self.before.values(), timeout=_FIRST_LOOK_S)

    def begin(self, replica: str, process: EngineProcess, place: Place) -> None:
        """Begin to take over ``process`` at ``place``."""
        self.before[replica] = self._tasks.start(self._adopt(replica, process, place))

    async def _take_over(self, name: str, record: EngineRecord, drained: asyncio.Future[None] | None) -> None:
        named = ((replica, engine) for replica, engine in self._engines.items() if engine.name == name)
        replica, engine = next(named, (None, None))
        process, fits = await _find(name, record, engine, self._launcher)
        if process is not None and not fits:
            stopping = self._stop_stray(name, process, drained)
            if drained is None:
                await stopping
            else:
                self.strays.append(self._tasks.start(stopping))
        elif process is not None and replica is not None:
            _log.info("%s still runs and is taken over", name)
            self._launcher.gpus.adopt(replica, record.gpus)
            self.begin(replica, process, record.place)

    async def _stop_stray(self, name: str, process: EngineProcess, drained: asyncio.Future[None] | None) -> None:
        """Stop an engine that is not wanted any more, once the gateway that still uses it has ``drained``."""
        _log.warning("%s still runs and is stopped: its configuration has changed", name)
        if drained is not None:
            await asyncio.shield(drained)
        await self._launcher.ownership.stop(process, _STRAY_STOP_S)
        self._launcher.ended(process)

    async def _adopt(self, replica: str, process: EngineProcess, place: Place) -> None:
        engine = self._engines[replica]
        try:
            await engine.adopt(process, place, asleep=engine.name in self._state_file.sleepers)
            await self._examine(replica, engine)
        except EnginehouseError:  # the engine has logged it
            if engine.state is ReplicaState.FAILED:
                self._on_exited(replica)


async def _find(
    name: str, record: EngineRecord, engine: Engine | None, launcher: HostLauncher
) -> tuple[EngineProcess | None, bool]:
    """Return the process of a recorded engine, ``None`` if it no longer runs, and whether it is still wanted.

    It is not if ``engine`` would launch it differently now, or if there is no engine.
    """
    if engine is not None:
        engine.gpus = record.gpus
    line = _line_now(engine, record.place)
    fits = line is not None and fingerprint(line) == record.fingerprint
    line = line or LaunchLine(command=(), port=record.port, bind=record.place.bind, place=record.placed)
    log = engine.log if engine is not None and fits else LogRing()
    return await launcher.adopt(name, line, log), fits


def _line_now(engine: Engine | None, place: Place) -> LaunchLine | None:
    """The current launch line of an engine, ``None`` if it is not configured or cannot be launched."""
    try:
        return engine.launch_line(place) if engine is not None else None
    except ConfigError:
        return None
