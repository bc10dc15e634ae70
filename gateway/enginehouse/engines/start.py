"""One start of an engine: its files, its place, its launch, and the wait until it is ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Protocol

from enginehouse.domain.errors import LoadFailed
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.engine_run import EngineParts, EngineRun
from enginehouse.engines.probing.health_check import HealthCheck
from enginehouse.engines.start_limits import StartLimits, longest_silence
from enginehouse.interfaces.launchers import EngineProcess, LaunchLine
from enginehouse.interfaces.places import Place

NOWHERE = Place(port=0)


class StartingEngine(EngineParts, Protocol):
    """An engine that starts. ``run``: set in the step in which it is launched."""

    run: EngineRun | None

    def note_start(self, state: ReplicaState, problem: str) -> None:
        """Take the phase of a start, and the problem that it has."""


class Start:
    """One start of ``engine``.

    ``problem``: its last one. ``run``: what it has launched. ``place``: where it may launch. It ``is_over`` for what
    goes on of it because a launcher resists a cancellation.
    """

    def __init__(self, engine: StartingEngine) -> None:
        self.limits = StartLimits(engine.managed.model, engine.log)
        self.first_line = engine.log.written
        self.problem = ""
        self.run: EngineRun | None = None
        self.place: Place | None = None
        self.is_over = False
        self._engine = engine

    async def look_ahead(self) -> None:
        """Find out whether the engine could be launched if others were stopped for it.

        If no machine has room for it, even without them, a place is found already. Raises ``LoadFailed``.
        """
        engine, launches = self._engine, self._engine.launches
        model, driver = engine.managed.model, engine.managed.driver.launch
        if not launches.places:
            files = () if model.source else engine.line.files
            if why := await launches.why_not(engine.line.line(NOWHERE), files):
                how = driver.how_to_install if not model.command else ""
                raise engine.errors.did_not_start(f"{why} ({how})" if how else why, self.first_line)
            return
        try:
            waits = partial(self._note, ReplicaState.PLACING)
            await launches.find_room(engine.name, engine.needs, model.place_timeout, waits)
        except TimeoutError:
            raise engine.errors.unplaced(model.place_timeout, self.problem, self.first_line) from None

    async def launch(self) -> EngineRun:
        """Launch the engine and wait until it is ready. The caller ends ``run``, or frees ``place``, if this fails.

        Raises ``TimeoutError`` once a limit is missed, which ``late`` describes.
        """
        engine, model = self._engine, self._engine.managed.model
        await self._have_files()
        self.place = place = await self._find_place()
        self.limits = StartLimits(model, engine.log)
        line = LaunchLine(command=(), port=0) if engine.managed.server else engine.line.line(place, engine.gpus)
        run = await self.limits.run(self._launched(line, place))
        await self.until_ready(run)
        if (driver := engine.managed.driver.cache) is not None and model.keep_cache:
            await engine.cache.restore(driver, run.client)
        return run

    async def until_ready(self, run: EngineRun) -> None:
        """Wait until an engine is ready. The caller ends it if this fails. Raises as ``launch`` does."""
        self.run = run

        def note(problem: str) -> None:
            if problem != self.problem:
                self.limits.note_progress()
            self._note(ReplicaState.STARTING, problem)

        await self.limits.run(self._until_healthy(run, note), run.process)

    def late(self) -> LoadFailed:
        """The error of a start that has missed a limit."""
        if self.run is None:
            return self._engine.errors.late(
                self.limits.missed, "it could not be launched in that time", self.first_line
            )
        return self._engine.errors.late(self.limits.missed, self.problem or "no answer yet", self.run.first_line)

    def _note(self, state: ReplicaState, problem: str = "") -> None:
        if not self.is_over:
            self.problem = problem
            self._engine.note_start(state, problem)

    async def _have_files(self) -> None:
        """Have the model's files before the launch. It takes as long as it takes."""
        engine = self._engine
        source, downloads = engine.managed.model.source, engine.launches.downloads
        if not source or downloads is None:
            return

        def tell(how_far: str) -> None:
            engine.log.write(f"downloading {source}: {how_far}\n".encode())
            self._note(ReplicaState.DOWNLOADING, how_far)

        tell("asking for its files")
        await downloads.fetch(source, engine.managed.rules.pull, tell)
        engine.line.look_again()
        self._note(ReplicaState.STARTING)

    async def _find_place(self) -> Place:
        """A place for the engine, for which it may have to wait."""
        engine = self._engine
        if engine.managed.server is not None:
            return NOWHERE
        limit, waits = engine.managed.model.place_timeout, partial(self._note, ReplicaState.PLACING)
        try:
            place = await engine.launches.find_place(engine.name, engine.needs, limit, waits)
        except TimeoutError:
            raise engine.errors.unplaced(limit, self.problem, self.first_line) from None
        self._note(ReplicaState.STARTING)
        return place

    async def _launched(self, line: LaunchLine, place: Place) -> EngineRun:
        """Launch and take the engine in one step, so that a cancelled start finds the engine and ends it."""
        engine, launches = self._engine, self._engine.launches
        server, model = engine.managed.server, engine.managed.model
        if line.place is not None and (why := await launches.why_not(line, engine.line.files)):
            raise engine.errors.did_not_start(why, self.first_line)
        process: EngineProcess
        async with launches.ownership.act():
            if server is not None:
                process = await server.load(engine.managed.model_name, longest_silence(model), engine.log)
            else:
                await self._prepare_cache(line)
                process = await launches.launch(engine.name, line, engine.log)
        run = EngineRun(engine, process, place, self.first_line)
        if self.is_over:  # the start was cancelled, and the launcher resisted that
            await launches.ownership.stop(process, model.stop_timeout)
            launches.ended(process)
        else:
            self.run = engine.run = run
        return run

    async def _prepare_cache(self, line: LaunchLine) -> None:
        """Have a folder for the cache of an engine that is launched with ``line``, if it is to be kept."""
        engine = self._engine
        folder = str(engine.cache.folder)
        if not any(folder in word for word in line.command):
            return
        try:
            await engine.cache.prepare(engine.line.fingerprint, line.command, engine.line.files)
        except OSError as error:
            why = f"the folder for its cache cannot be made: {error} (keep_cache = 0 does without it)"
            raise engine.errors.did_not_start(why, self.first_line) from None

    async def _until_healthy(self, run: EngineRun, note: Callable[[str], None]) -> None:
        """Wait until the engine is healthy; ``note`` gets each problem. Raises ``LoadFailed`` if it exits first."""
        log, printed = self._engine.log, asyncio.Event()
        log.follow(printed)
        healthy = asyncio.ensure_future(self._is_healthy(run, printed, note))
        exited = asyncio.ensure_future(run.process.exited())
        try:
            await asyncio.wait({healthy, exited}, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                raise self._engine.errors.exited_early(exited.result(), run.first_line)
            healthy.result()
        finally:
            log.unfollow(printed)
            healthy.cancel()
            exited.cancel()
            del healthy, exited  # a failure refers to this frame, and its task to the failure

    async def _is_healthy(self, run: EngineRun, printed: asyncio.Event, note: Callable[[str], None]) -> None:
        await run.process.listening()
        managed = self._engine.managed
        await HealthCheck(managed.driver.driver, managed.model.health_path).wait_until_healthy(
            run.client, printed, note
        )
