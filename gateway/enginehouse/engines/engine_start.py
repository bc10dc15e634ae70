"""One start of an engine: its files, its place, its process, and the wait until it is ready."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, Protocol

from enginehouse.config.schema import ModelSettings
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.engine_places import Placing
from enginehouse.engines.engine_records import EngineRecords
from enginehouse.engines.launch_line import LaunchRules
from enginehouse.engines.model_driver import EngineRun, ModelDriver
from enginehouse.engines.ownership import EngineOwnership
from enginehouse.engines.pulled_models import Downloads
from enginehouse.engines.start_errors import StartErrors
from enginehouse.engines.start_limits import StartLimits
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launchers import EngineProcess, Launcher, LaunchLine
from enginehouse.interfaces.places import Place, PlacementOptions
from enginehouse.telemetry.log_ring import LogRing

_NOWHERE = Place(port=0)


class StartMeans(NamedTuple):
    """What every start of one engine works with, as ``Supervisor`` got it."""

    name: str
    launcher: Launcher | EngineRecords
    placing: Placing
    connect: Callable[[str], EngineClient]
    downloads: Downloads | None
    elsewhere: bool
    ownership: EngineOwnership
    log: LogRing
    errors: StartErrors
    on_ended: Callable[[EngineProcess], None]


class StartSettings(NamedTuple):
    """By what an engine is started, and spoken with."""

    model: ModelSettings
    rules: LaunchRules
    placement: PlacementOptions
    driver: ModelDriver


class StartOwner(Protocol):
    """The supervisor of an engine, as a start of it sees it."""

    settings: StartSettings
    """Those of now: they may change during the start."""

    def launch_line(self, place: Place) -> LaunchLine:
        """The launch line of the engine in ``place``. Raises ``ConfigError``."""

    def look_again(self) -> None:
        """Make launch lines by the files of now."""

    def note(self, state: ReplicaState, problem: str = "") -> None:
        """Take the state of the start, and the problem that it has."""

    def launched(self, engine: EngineRun) -> None:
        """Take the engine, which is not ready yet."""

    async def end(self, engine: EngineRun) -> None:
        """Stop the engine."""

    def finish(self, end: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run ``end`` to completion, even if its caller is cancelled."""


class EngineStart:
    """Starts an engine for ``owner``, once. The time limits of a wake begin with this object."""

    def __init__(self, means: StartMeans, owner: StartOwner) -> None:
        self._means = means
        self._owner = owner
        self._limits = StartLimits(owner.settings.model, means.log)
        self._first_line = means.log.written
        self._problem = ""
        self._engine: EngineRun | None = None
        self._is_over = False

    async def launch(self) -> EngineRun:
        """Launch the engine, and wait until it is ready. After any exception, no process is left."""
        try:
            await self._have_files()
            engine = await self._launch_in(_NOWHERE if self._means.elsewhere else await self._place())
            await self.until_ready(engine)
            return engine
        finally:
            self._is_over = True

    async def until_ready(self, engine: EngineRun) -> None:
        """Wait until the engine is ready. Ends it after any exception."""

        def note(problem: str) -> None:
            if problem != self._problem:
                self._limits.note_progress()
            self._note(ReplicaState.STARTING, problem)

        means, driver = self._means, self._owner.settings.driver
        try:
            healthy = driver.until_healthy(engine, means.log, means.errors, note)
            await self._limits.run(healthy, engine.process)
        except BaseException as error:
            await self._owner.finish(self._owner.end(engine))
            if isinstance(error, TimeoutError):
                why = self._problem or "no answer yet"
                raise means.errors.late(self._limits.missed, why, engine.first_line) from None
            raise

    async def _have_files(self) -> None:
        """Have the model's files before the launch. It takes as long as it takes."""
        settings, downloads, written = self._owner.settings, self._means.downloads, self._means.log
        source = settings.model.source
        if not source or downloads is None:
            return

        def tell(how_far: str) -> None:
            written.write(f"downloading {source}: {how_far}\n".encode())
            self._note(ReplicaState.DOWNLOADING, how_far)

        tell("asking for its files")
        await downloads.fetch(source, settings.rules.pull, tell)
        self._owner.look_again()
        self._note(ReplicaState.STARTING)

    async def _place(self) -> Place:
        """A place for the engine, for which it may have to wait."""
        means, settings = self._means, self._owner.settings
        waits = partial(self._note, ReplicaState.PLACING)
        try:
            place = await means.placing.find(settings.model, settings.placement, waits)
        except TimeoutError:
            raise means.errors.unplaced(settings.model.place_timeout, self._problem, self._first_line) from None
        self._note(ReplicaState.STARTING)
        return place

    async def _launch_in(self, place: Place) -> EngineRun:
        means = self._means
        self._limits = StartLimits(self._owner.settings.model, means.log)
        try:
            return await self._limits.run(self._launched(self._owner.launch_line(place), place))
        except BaseException as error:
            self._is_over = True
            if self._engine is not None:
                await self._owner.finish(self._owner.end(self._engine))
            elif not means.elsewhere:
                await self._owner.finish(means.placing.release(place))
            if isinstance(error, TimeoutError):
                why = "it could not be launched in that time"
                raise means.errors.late(self._limits.missed, why, self._first_line) from None
            raise

    async def _launched(self, line: LaunchLine, place: Place) -> EngineRun:
        """Launch and hand over in one step, so that a cancelled start finds the engine and ends it."""
        means, settings = self._means, self._owner.settings
        if line.place is not None and (why := await means.launcher.why_not(line, settings.driver.launch.files)):
            raise means.errors.cannot_start(why, self._first_line)
        async with means.ownership.act():
            process = await means.launcher.launch(means.name, line, means.log)
        engine = EngineRun(process, means.connect(process.address), place, self._first_line)
        if self._is_over:  # the start was cancelled, and the launcher resisted that
            await means.ownership.stop(process, self._owner.settings.model.stop_timeout)
            means.on_ended(process)
        else:
            self._engine = engine
            self._owner.launched(engine)
        return engine

    def _note(self, state: ReplicaState, problem: str = "") -> None:
        if not self._is_over:
            self._problem = problem
            self._owner.note(state, problem)
