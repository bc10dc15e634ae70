"""One start of an engine, from its files to its readiness, with its time limits, and the run that it begins."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from enginehouse.aio.timeouts import leave, run_within
from enginehouse.config.schema import ModelSettings
from enginehouse.domain.errors import EnginehouseError
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.engine_cache import EngineCache
from enginehouse.engines.failures import StartErrors
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.launch_line import ModelLaunch
from enginehouse.engines.launches import Launches
from enginehouse.engines.probing import HealthCheck, ProbedEngine
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.interfaces.launchers import EngineProcess, LaunchLine
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing

T = TypeVar("T")

_log = logging.getLogger(__name__)

_LONGEST_START_S = 120
_LONGEST_WATCHED_START_S = 24 * 3600
_LOOKS = 10
"""Looks for a sign of progress within the longest silence."""
_LONGEST_PAUSE_S = 5.0
_SIGN_BYTES = 1 << 20
"""An engine that hangs still answers health checks: the few bytes of these are no progress."""

NOWHERE = Place(port=0)
_QUESTION_S = 5.0
"""The time limit of a question that a ready engine need not answer."""


def longest_start(model: ModelSettings) -> float:
    """The time limit for starting ``model``. A start that must show progress needs no tight one."""
    if model.start_timeout is not None:
        return model.start_timeout
    return _LONGEST_START_S if model.start_silence is None else _LONGEST_WATCHED_START_S


def longest_silence(model: ModelSettings) -> float:
    """The longest time of a start without a sign of progress."""
    return longest_start(model) if model.start_silence is None else model.start_silence


class StartLimits:
    """Limits a start that begins now.

    Signs of progress are output in ``log``, bytes that the engine moves, and a new problem or phase.
    """

    def __init__(self, model: ModelSettings, log: LogRing) -> None:
        self._loop = asyncio.get_running_loop()
        self._total = longest_start(model)
        self._silence = self._total if model.start_silence is None else model.start_silence
        self._pause = min(self._silence / _LOOKS, _LONGEST_PAUSE_S) if self._silence < self._total else self._total
        self._log = log
        self._heard = self._loop.time()
        self._end = self._heard + self._total
        self._printed = log.received
        self._moved: int | None = None

    def note_progress(self) -> None:
        """Note that the start makes progress."""
        self._heard = self._loop.time()

    @property
    def missed(self) -> str:
        """The limit that the start has missed, as the end of the sentence that begins with "it"; empty if none."""
        now = self._loop.time()
        if now >= self._end:
            return f"was not ready within {self._total:g} s"
        if now >= self._heard + self._silence:
            return f"showed no sign of progress for {self._silence:g} s"
        return ""

    async def run(self, work: Coroutine[Any, Any, T], of: EngineRun | None = None) -> T | None:
        """Run a part of the start, ``of`` an engine that is launched already. ``None`` if that exits first.

        Raises ``TimeoutError`` once a limit is missed. Does not wait for work that resists its cancellation.
        """
        task = asyncio.ensure_future(work)
        ends: set[asyncio.Future[Any]] = {task} if of is None else {task, of.exited}
        self._heard = now = self._loop.time()
        try:
            while True:
                until_look = min(self._pause, min(self._end, self._heard + self._silence) - now)
                done, _ = await asyncio.wait(ends, timeout=max(0.0, until_look), return_when=asyncio.FIRST_COMPLETED)
                if done and (of is None or not of.exited.done()):
                    return task.result()
                if done:
                    leave(task)
                    return None
                if self._silence < self._total:
                    await self._look(of)
                if self.missed:
                    raise TimeoutError
                now = self._loop.time()
        except BaseException:
            leave(task)
            raise
        finally:
            del task, ends  # a failure refers to this frame, and would be kept by its own task until the collector runs

    async def _look(self, of: EngineRun | None) -> None:
        """Look for a sign of progress."""
        if self._printed != self._log.received:
            self._printed = self._log.received
            self.note_progress()
        try:
            moved = None if of is None else await run_within(_LONGEST_PAUSE_S, of.process.bytes_moved())
        except (TimeoutError, EnginehouseError):
            return
        if moved is not None and (self._moved is None or abs(moved - self._moved) >= _SIGN_BYTES):
            if self._moved is not None:
                self.note_progress()
            self._moved = moved


class StartingEngine(ABC):
    """The engine of ``managed``, as its starts and its runs know it.

    ``connect`` makes a client from the engine's address. ``gpus``: the ``CUDA_VISIBLE_DEVICES`` of the next launch,
    empty for none. ``log`` outlives the process: a restarted one continues it. ``cache``: what is kept of its prefix
    cache while it does not run, if it ``keeps_cache``. ``elsewhere``: a server that runs already loads the model.
    ``run``: set in the step in which it is launched.
    """

    def __init__(self, managed: ManagedReplica, launches: Launches, connect: Callable[[str], ProbedEngine]) -> None:
        self.name = managed.engine
        self.launches = launches
        self.connect = connect
        self.gpus = ""
        self.log = LogRing()
        self.errors = StartErrors(managed.model_name, self.log)
        self.cache = EngineCache(launches.caches, managed)
        self.state = ReplicaState.STOPPED
        self.run: EngineRun | None = None
        self.reconfigure(managed)

    def reconfigure(self, managed: ManagedReplica) -> None:
        """Use these settings from now on. A running engine continues as it was launched."""
        model, driver = managed.model, managed.driver
        self.managed, self.elsewhere, self.may_sleep = managed, managed.server is not None, model.sleeps
        self.needs = self.launches.needs(managed)
        self.keeps_cache = bool(model.keep_cache) and driver.cache is not None and not self.elsewhere
        self.check = HealthCheck(driver.driver, model.health_path)
        self.line = ModelLaunch(
            managed.model_name,
            model,
            driver.launch,
            managed.rules,
            backend=self.name,
            cache_folder=str(self.cache.folder) if self.keeps_cache else "",
        )

    @abstractmethod
    def note_start(self, state: ReplicaState, problem: str) -> None:
        """Take the phase of a start, and the problem that it has."""

    @abstractmethod
    async def end(self, run: EngineRun) -> None:
        """End what a start has launched."""

    @abstractmethod
    def finish(self, end: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Run ``end`` to completion, even if its caller is cancelled, before the next start."""


class EngineRun:
    """One run of ``engine``, as ``process`` in ``place``. ``client`` speaks with it. ``exited``: its end.

    ``first_line``: the number of the first line that it printed. ``is_warm``: it was ready, so that its prefix cache
    is to be kept, if any is.
    """

    def __init__(self, engine: StartingEngine, process: EngineProcess, place: Place, first_line: int) -> None:
        self.process = process
        self.client = engine.connect(process.address)
        self.exited = asyncio.ensure_future(process.exited())
        self.place = place
        self.first_line = first_line
        self.is_warm = False
        self._engine = engine

    async def concurrency(self) -> int | None:
        """The number of requests that it reports to serve at once; ``None`` if it reports none, or is not asked."""
        if self._engine.managed.model.concurrency:
            return None
        try:
            return await run_within(_QUESTION_S, self._engine.managed.driver.figures.concurrency(self.client))
        except Exception as error:
            text = "%s does not report its concurrency: %s"
            _log.debug(text, self._engine.name, error or type(error).__name__)
            return None

    async def wake(self) -> bool:
        """Whether it wakes."""
        managed = self._engine.managed
        return await self._agrees(managed.driver.sleep.wake_as_launched, longest_silence(managed.model))

    async def sleep(self) -> bool:
        """Whether it goes to sleep."""
        managed = self._engine.managed
        return await self._agrees(managed.driver.sleep.sleep_as_launched, managed.model.stop_timeout)

    async def save_cache(self) -> None:
        """Save its prefix cache, before it stops or sleeps."""
        if self._engine.keeps_cache:
            await self._engine.cache.save(self._engine.managed, self.client)
        self.is_warm = False

    async def _agrees(
        self, ask: Callable[[EngineClient, LaunchSpec], Coroutine[Any, Any, bool]], timeout: float
    ) -> bool:
        """Whether the engine does in time what it is asked for."""
        async with self._engine.launches.ownership.act():
            try:
                return await run_within(timeout, ask(self.client, self._engine.line.spec(self.place)))
            except Exception as error:
                text = "%s could not be put to sleep or woken: %s"
                _log.warning(text, self._engine.name, error or type(error).__name__)
                return False


class Start:
    """One start of ``engine``.

    ``problem``: its last one. ``run``: what it has launched. ``place``: where it may launch. It ``is_over`` for what
    goes on of it because a launcher resists a cancellation.
    """

    def __init__(self, engine: StartingEngine) -> None:
        self.limits: StartLimits | None = None
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
            if why := await launches.why_not(engine.line.nowhere, files):
                how = driver.how_to_install if not model.command else ""
                raise engine.errors.did_not_start(f"{why} ({how})" if how else why, self.first_line)
            return
        try:
            waits = partial(self._note, ReplicaState.PLACING)
            await launches.find_room(engine.name, engine.needs, model.place_timeout, waits)
        except TimeoutError:
            raise engine.errors.unplaced(model.place_timeout, self.problem, self.first_line) from None

    async def bring_up(self, run: EngineRun | None = None) -> EngineRun:
        """Wait until ``run`` is ready; without it, until the engine has been launched and is ready.

        After any exception, no process is left, and no place is taken. Raises ``LoadFailed``.
        """
        engine, self.run, is_new = self._engine, run, run is None
        model = engine.managed.model
        try:
            if run is None:
                if model.source:
                    await self._have_files(model.source)
                self.place = NOWHERE if engine.elsewhere else await self._find_place()
            limits = self.limits = StartLimits(model, engine.log)
            if self.place is not None:
                run = await limits.run(self._launched(self.place))
            assert run is not None
            is_healthy = engine.check.wait_until_healthy(run.process, run.client, engine.log, self._note_problem)
            await limits.run(is_healthy, run)
            if run.exited.done():
                raise engine.errors.exited_early(run.exited.result(), run.first_line)
            if is_new and engine.keeps_cache:
                await engine.cache.restore(engine.managed, run.client)
            return run
        except BaseException as error:
            self.is_over = True
            if self.run is not None:
                await engine.finish(engine.end(self.run))
            elif self.place is not None:
                await engine.finish(engine.launches.release(engine.name, self.place))
            if isinstance(error, TimeoutError):
                self._check_limits()
            raise
        finally:
            self.is_over = True

    def _check_limits(self) -> None:
        """Raise ``LoadFailed`` if the start has missed a limit."""
        if self.limits is None or not (missed := self.limits.missed):
            return
        why = "it could not be launched in that time" if self.run is None else self.problem or "no answer yet"
        first_line = self.first_line if self.run is None else self.run.first_line
        raise self._engine.errors.late(missed, why, first_line) from None

    def _note(self, state: ReplicaState, problem: str = "") -> None:
        if not self.is_over:
            self.problem = problem
            self._engine.note_start(state, problem)

    def _note_problem(self, problem: str) -> None:
        if problem != self.problem and self.limits is not None:
            self.limits.note_progress()
        self._note(ReplicaState.STARTING, problem)

    async def _have_files(self, source: str) -> None:
        """Have the files of a model from ``source`` before the launch. It takes as long as it takes."""
        engine, downloads = self._engine, self._engine.launches.downloads
        if downloads is None:
            return

        def note(how_far: str) -> None:
            if how_far != self.problem:
                engine.log.write(f"downloading {source}: {how_far}\n".encode())
                self._note(ReplicaState.DOWNLOADING, how_far)

        def note_bytes(done: int, total: int | None) -> None:
            from rich.filesize import decimal  # a gateway that downloads nothing does without

            note(f"{done * 100 // total} % of {decimal(total)}" if total else decimal(done))

        note("asking for its files")
        await downloads.fetch(source, engine.managed.rules.pull, note_bytes)
        engine.line.look_again()
        self._note(ReplicaState.STARTING)

    async def _find_place(self) -> Place:
        """A place for the engine, for which it may have to wait."""
        engine, limit = self._engine, self._engine.managed.model.place_timeout
        waits = partial(self._note, ReplicaState.PLACING)
        try:
            place = await engine.launches.find_place(engine.name, engine.needs, limit, waits)
        except TimeoutError:
            raise engine.errors.unplaced(limit, self.problem, self.first_line) from None
        if engine.state is not ReplicaState.STARTING:
            self._note(ReplicaState.STARTING)
        return place

    async def _launched(self, place: Place) -> EngineRun:
        """Launch and take the engine in one step, so that a cancelled start finds the engine and ends it."""
        engine, launches = self._engine, self._engine.launches
        server, model = engine.managed.server, engine.managed.model
        line = None if server is not None else engine.line.line(place, engine.gpus)
        if line is not None and line.place is not None and (why := await launches.why_not(line, engine.line.files)):
            raise engine.errors.did_not_start(why, self.first_line)
        process: EngineProcess
        async with launches.ownership.act():
            if server is not None:
                process = await server.load(engine.managed.model_name, longest_silence(model), engine.log)
            else:
                assert line is not None
                if engine.keeps_cache and str(engine.cache.folder) in " ".join(line.command):
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
        """Have a folder for the cache of an engine that is launched with ``line``."""
        engine = self._engine
        try:
            await engine.cache.prepare(engine.line.fingerprint, line.command, engine.line.files)
        except OSError as error:
            why = f"the folder for its cache cannot be made: {error} (keep_cache = 0 does without it)"
            raise engine.errors.did_not_start(why, self.first_line) from None
