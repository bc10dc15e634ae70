"""One start of an engine: its files, its place, its process, and the wait until it is ready."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, Protocol

from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.engine_setup import EngineRun, EngineSetup
from enginehouse.engines.start_limits import StartLimits
from enginehouse.interfaces.launchers import LaunchLine
from enginehouse.interfaces.places import Place


class StartOwner(Protocol):
    """The supervisor of an engine, as a start of it sees it."""

    def note(self, state: ReplicaState, problem: str = "") -> None:
        """Take the state of the start, and the problem that it has."""

    def launched(self, engine: EngineRun) -> None:
        """Take the engine, which is not ready yet."""

    async def end(self, engine: EngineRun) -> None:
        """Stop the engine."""

    def finish(self, end: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """Run ``end`` to completion, even if its caller is cancelled."""


class EngineStart:
    """Starts the engine of ``setup`` for ``owner``, once. The time limits of a wake begin with this object."""

    def __init__(self, setup: EngineSetup, owner: StartOwner) -> None:
        self._setup = setup
        self._owner = owner
        self._limits = StartLimits(setup.managed.model, setup.log)
        self._first_line = setup.log.written
        self._problem = ""
        self._engine: EngineRun | None = None
        self._is_over = False

    async def launch(self) -> EngineRun:
        """Launch the engine, and wait until it is ready. After any exception, no process is left."""
        try:
            await self._have_files()
            engine = await self._launch_in(await self._place())
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

        try:
            await self._limits.run(self._setup.until_healthy(engine, note), engine.process)
        except BaseException as error:
            await self._owner.finish(self._owner.end(engine))
            if isinstance(error, TimeoutError):
                why = self._problem or "no answer yet"
                raise self._setup.errors.late(self._limits.missed, why, engine.first_line) from None
            raise

    async def _have_files(self) -> None:
        """Have the model's files before the launch. It takes as long as it takes."""
        setup, downloads = self._setup, self._setup.launcher.downloads
        source = setup.managed.model.source
        if not source or downloads is None:
            return

        def tell(how_far: str) -> None:
            setup.log.write(f"downloading {source}: {how_far}\n".encode())
            self._note(ReplicaState.DOWNLOADING, how_far)

        tell("asking for its files")
        await downloads.fetch(source, setup.managed.rules.pull, tell)
        setup.look_again()
        self._note(ReplicaState.STARTING)

    async def _place(self) -> Place:
        """A place for the engine, for which it may have to wait."""
        limit = self._setup.managed.model.place_timeout
        try:
            place = await self._setup.find_place(partial(self._note, ReplicaState.PLACING))
        except TimeoutError:
            raise self._setup.errors.unplaced(limit, self._problem, self._first_line) from None
        self._note(ReplicaState.STARTING)
        return place

    async def _launch_in(self, place: Place) -> EngineRun:
        setup = self._setup
        self._limits = StartLimits(setup.managed.model, setup.log)
        try:
            return await self._limits.run(self._launched(setup.launch_line(place), place))
        except BaseException as error:
            self._is_over = True
            ends = self._owner.end(self._engine) if self._engine else setup.launcher.release(setup.name, place)
            await self._owner.finish(ends)
            if isinstance(error, TimeoutError):
                why = "it could not be launched in that time"
                raise setup.errors.late(self._limits.missed, why, self._first_line) from None
            raise

    async def _launched(self, line: LaunchLine, place: Place) -> EngineRun:
        """Launch and hand over in one step, so that a cancelled start finds the engine and ends it."""
        setup, launcher = self._setup, self._setup.launcher
        if line.place is not None and (why := await launcher.why_not(line, setup.launch.files)):
            raise setup.errors.did_not_start(why, self._first_line)
        process = await setup.start(line)
        engine = EngineRun(process, setup.connect(process.address), place, self._first_line)
        if self._is_over:  # the start was cancelled, and the launcher resisted that
            await launcher.ownership.stop(process, setup.managed.model.stop_timeout)
            launcher.ended(process)
        else:
            self._engine = engine
            self._owner.launched(engine)
        return engine

    def _note(self, state: ReplicaState, problem: str = "") -> None:
        if not self._is_over:
            self._problem = problem
            self._owner.note(state, problem)
