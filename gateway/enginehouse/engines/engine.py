"""One managed engine: from its files and its place to its process, its readiness, its sleep and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any, NamedTuple

from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import EnginehouseError, LoadCancelled, NotEnoughMemory, PluginFailed
from enginehouse.domain.replica import AT_REST, ReplicaState
from enginehouse.engines.host_launcher import HostLauncher
from enginehouse.engines.host_replicas import ManagedReplica
from enginehouse.engines.kept_cache import KeptCache, kept_caches
from enginehouse.engines.launch_line import ModelLaunch
from enginehouse.engines.probing.health_check import HealthCheck
from enginehouse.engines.second_tries import TryAgain, never_again
from enginehouse.engines.start_errors import StartErrors, how_it_ended
from enginehouse.engines.start_limits import StartLimits, longest_silence
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.interfaces.launchers import EngineProcess, LaunchLine
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_QUESTION_S = 5.0
"""The time limit of a question that a ready engine need not answer."""
_NOWHERE = Place(port=0)
_TOLD_IN_PARTS = (ReplicaState.DOWNLOADING, ReplicaState.PLACING)
"""The states whose problems change while they last."""


class EngineRun(NamedTuple):
    """One run of an engine. ``client`` speaks with it. ``first_line``: the number of the first line that it printed."""

    process: EngineProcess
    client: EngineClient
    place: Place
    first_line: int


class _Start:
    """One start. It ``is_over`` for what goes on of it because a launcher resists a cancellation."""

    def __init__(self, managed: ManagedReplica, log: LogRing) -> None:
        self.limits = StartLimits(managed.model, log)
        self.first_line = log.written
        self.problem = ""
        self.run: EngineRun | None = None
        self.is_over = False


class Engine:
    """The engine of ``managed``, on the orders of its pool. It alone keeps its ``state``.

    ``connect`` makes a client from the engine's address. ``on_state`` gets every new state as it is ``shown``, which
    was ``before`` until then. A ``retired`` engine is shown as stopping until it has stopped. ``problem`` describes the
    current problem for people, empty if there is none. ``is_lost``: the last engine was lost with its place. ``log``
    outlives the process: a restarted one continues it. ``gpus``: the ``CUDA_VISIBLE_DEVICES`` of the next launch, empty
    for none. ``version`` grows when engines launched so far do not fit the settings any more. ``may_sleep``: it is put
    to sleep when it is idle or evicted.
    """

    def __init__(
        self,
        managed: ManagedReplica,
        launcher: HostLauncher,
        *,
        connect: Callable[[str], EngineClient],
        on_state: Callable[[ReplicaState], None],
    ) -> None:
        self.name = managed.engine
        self.log = LogRing()
        self.gpus = ""
        self.version = 0
        self.state = self.shown = self.before = ReplicaState.STOPPED
        self.retired = self.was_retired = False
        self.problem = self._hung = ""
        self.is_lost = False
        self._launcher = launcher
        self._cache = KeptCache(self.name, managed.model_name, kept_caches(launcher.state_file), launcher.caches)
        self._is_warm = False
        self._connect = connect
        self._on_state = on_state
        self._errors = StartErrors(managed.model_name, self.log)
        self._starting: asyncio.Task[None] | None = None
        self._run: EngineRun | None = None
        self._watching: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Future[None]] = set()
        self.reconfigure(managed)

    # --- settings

    def reconfigure(self, managed: ManagedReplica) -> None:
        """Use these settings from now on. A running engine continues as it was launched."""
        self.managed = managed
        self.may_sleep = managed.model.sleeps
        self._needs = self._launcher.needs(managed)
        self._look_again()

    def _look_again(self) -> None:
        """Make launch lines by the files of now."""
        managed = self.managed
        keeps = managed.model.keep_cache and managed.driver.cache is not None and not self.elsewhere
        self._line = ModelLaunch(
            managed.model_name,
            managed.model,
            managed.driver.launch,
            managed.rules,
            backend=self.name,
            cache_folder=str(self._cache.folder) if keeps else "",
        )

    @property
    def elsewhere(self) -> bool:
        """Whether the model is loaded on a server that runs already."""
        return self.managed.server is not None

    def launch_line(self, place: Place) -> LaunchLine:
        """The launch line of the engine in ``place``. Raises ``ConfigError``."""
        return LaunchLine(command=(), port=place.port) if self.elsewhere else self._line.line(place, self.gpus)

    def footprint_key(self) -> str | None:
        """The name under which the memory of an engine with this launch line is known; ``None`` if it has none."""
        try:
            return None if self.elsewhere else f"{self.managed.model_name} {self._line.fingerprint}"
        except EnginehouseError:
            return None

    # --- facts

    @property
    def address(self) -> str | None:
        """The address at which the engine listens; ``None`` unless it is ready."""
        return self._run.process.address if self._run and self.state is ReplicaState.READY else None

    @property
    def place(self) -> Place | None:
        """Where the engine runs; ``None`` if it does not."""
        return self._run.place if self._run else None

    @property
    def cache_kept(self) -> bool:
        """Whether the next launch gets the prefix cache of this engine back."""
        return self._cache.tokens > 0

    @property
    def is_asleep(self) -> bool:
        """Whether the engine sleeps."""
        return self.state is ReplicaState.SLEEPING

    async def memory(self) -> int | None:
        """The bytes of main memory that the engine takes now; ``None`` if unknown, or if no engine runs."""
        return await self._run.process.memory() if self._run else None

    async def processor_seconds(self) -> float | None:
        """The processor time that the engine has taken so far; ``None`` if unknown, or if no engine runs."""
        return await self._run.process.processor_seconds() if self._run else None

    async def processes(self) -> Collection[int]:
        """The ids of the engine's processes; empty if it does not run on this machine, or does not run."""
        return await self._run.process.processes() if self._run else ()

    async def concurrency(self) -> int | None:
        """The number of requests that the ready engine reports to serve at once; ``None`` if it reports none."""
        if self._run is None or self.state is not ReplicaState.READY or self.managed.model.concurrency:
            return None
        try:
            return await run_within(_QUESTION_S, self.managed.driver.figures.concurrency(self._run.client))
        except Exception as error:
            _log.debug("%s does not report its concurrency: %s", self.name, error or type(error).__name__)
            return None

    # --- orders

    async def prepare(self) -> None:
        """Find out whether an engine that must be launched can be, before others are stopped for it.

        If no machine has room for it, even without them, a place is found first. Raises ``LoadFailed``.
        """
        state = self.state
        if self.elsewhere or self._run is not None or self._starting is not None:
            return
        try:
            if not self._launcher.places and (why := await self._why_not()):
                raise self._errors.did_not_start(why, self.log.written)
            await self._find_room()
        except asyncio.CancelledError:
            self._become(state)
            raise
        except Exception as error:
            self._become(ReplicaState.FAILED, str(error))
            raise

    async def give_place_up(self) -> None:
        """Free the place that ``prepare`` found, unless an engine was launched there."""
        await self._launcher.give_up(self.name)

    async def start(self, again: TryAgain = never_again) -> None:
        """Wake the engine if it sleeps, else launch it, and wait until it can take requests.

        A launch that finds too little memory is repeated as long as ``again`` says so; the state does not show it.
        Waits at most ``place_timeout`` for a place. The start then takes at most ``start_timeout``, and
        ``start_silence`` without a sign of progress, not counting the end of an earlier engine. Must not be called for
        an engine that is starting or ready. Raises ``LoadFailed`` with the engine's last lines, ``NotEnoughMemory`` if
        they show that reason, and ``ConfigError`` if the configuration has no valid launch line. After any exception,
        also a cancellation, no process is left.
        """
        while self._endings:
            await asyncio.wait(self._endings)
        sleeper = self._run if self.state is ReplicaState.SLEEPING else None
        await self._bring_up(self._wake(sleeper, again) if sleeper else self._launch(again))

    async def adopt(self, process: EngineProcess, place: Place, *, asleep: bool = False) -> None:
        """Take over an engine of an earlier gateway, instead of ``start``. Wake it if it may be ``asleep``."""
        self._launcher.claim(place)
        self._run = run = EngineRun(process, self._connect(process.address), place, self.log.written)
        await self._bring_up(self._take_over(run, asleep))

    def retire(self) -> None:
        """Be seen as stopping until the engine has stopped, so that it gets no new requests."""
        self.retired, self.shown = True, ReplicaState.STOPPING

    async def stop(self, timeout: float | None = None) -> None:
        """Stop the engine, also while it starts. Kill it after ``timeout`` seconds, by default ``stop_timeout``.

        The engine ends even if this is cancelled.
        """
        if (starting := self._starting) is not None:
            self._become(ReplicaState.STOPPING)
            starting.cancel()
            await asyncio.wait({starting})
        if (run := self._run) is not None:
            self._become(ReplicaState.STOPPING)
            await self._finish(self._end(run, timeout))
        elif self._starting is None:
            self._become(ReplicaState.STOPPED)
        if self.retired:  # no engine ran, so no event has told it
            self._tell(self.state)

    async def leave(self) -> None:
        """Stop watching an engine that runs on."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    def sleep_or_stop(self, *, evicted: bool = False) -> asyncio.Future[None]:
        """Put a ready engine to sleep or, where model or driver do not allow it, stop it: because it is idle or, if it
        is ``evicted``, because another needs its memory.

        The engine is no longer ready when this returns. The future ends with the sleep or the stop.
        """
        assert self._run is not None
        self._become(ReplicaState.STOPPING)
        model = self.managed.model
        wanted = model.evict if evicted else model.idle
        return self._finish(self._sleep_or_end(self._run, wanted == "sleep"))

    async def end_hung(self, problem: str) -> None:
        """Kill a ready engine that hangs. It fails with ``problem``, and may be started again."""
        if (run := self._run) is not None and self.state is ReplicaState.READY:
            self._hung = problem
            await self._launcher.ownership.stop(run.process, 0)

    # --- files and place

    async def _why_not(self) -> str:
        """Why the engine cannot be launched on this machine, with a remedy; empty if it may."""
        model, driver = self.managed.model, self.managed.driver.launch
        why = await self._launcher.why_not(self._line.line(_NOWHERE), () if model.source else self._line.files)
        return f"{why} ({driver.how_to_install})" if why and driver.how_to_install and not model.command else why

    async def _find_room(self) -> None:
        """Have a place already, if no machine has room for the engine: one may still come."""
        why, model = "", self.managed.model

        def waits(reason: str) -> None:
            nonlocal why
            why = reason
            self._become(ReplicaState.PLACING, reason)

        try:
            await self._launcher.find_room(self.name, self._needs, model.place_timeout, waits)
        except TimeoutError:
            raise self._errors.unplaced(model.place_timeout, why, self.log.written) from None

    async def _have_files(self, start: _Start) -> None:
        """Have the model's files before the launch. It takes as long as it takes."""
        source, downloads = self.managed.model.source, self._launcher.downloads
        if not source or downloads is None:
            return

        def tell(how_far: str) -> None:
            self.log.write(f"downloading {source}: {how_far}\n".encode())
            self._note(start, ReplicaState.DOWNLOADING, how_far)

        tell("asking for its files")
        await downloads.fetch(source, self.managed.rules.pull, tell)
        self._look_again()
        self._note(start, ReplicaState.STARTING)

    async def _place(self, start: _Start) -> Place:
        """A place for the engine, for which it may have to wait."""
        if self.elsewhere:
            return _NOWHERE
        limit, waits = self.managed.model.place_timeout, partial(self._note, start, ReplicaState.PLACING)
        try:
            place = await self._launcher.find_place(self.name, self._needs, limit, waits)
        except TimeoutError:
            raise self._errors.unplaced(limit, start.problem, start.first_line) from None
        self._note(start, ReplicaState.STARTING)
        return place

    # --- start

    async def _bring_up(self, start: Coroutine[Any, Any, None]) -> None:
        self._become(ReplicaState.STARTING)
        starting = self._starting = asyncio.create_task(start)
        try:
            await starting
        except asyncio.CancelledError:
            asked_to_stop = self.state is ReplicaState.STOPPING
            if self._run is not None and not self._endings:  # it had just become ready
                self._become(ReplicaState.STOPPING)
                await self._finish(self._end(self._run))
            self._become(ReplicaState.STOPPING if self._run else ReplicaState.STOPPED)
            if not asked_to_stop:
                raise
        except Exception as error:
            self._become(ReplicaState.FAILED, str(error))
            raise
        finally:
            self._starting = None
            del starting  # a failure refers to this frame, and its task to the failure
        if self.state is not ReplicaState.READY:
            raise LoadCancelled(f"Model '{self.managed.model_name}' was stopped while it started")

    async def _launch(self, again: TryAgain) -> None:
        while True:
            start = _Start(self.managed, self.log)
            try:
                await self._have_files(start)
                run = await self._launch_in(await self._place(start), start)
                await self._until_ready(run, start)
                await self._restore_cache(run)
            except NotEnoughMemory:
                start.is_over = True
                if not await again():
                    raise
            else:
                self._be_ready(run)
                return
            finally:
                start.is_over = True

    async def _take_over(self, run: EngineRun, asleep: bool) -> None:
        if self.managed.driver.cache is not None:
            await self._cache.recall()
        if asleep:
            await self._woken(run)
        await self._until_ready(run, _Start(self.managed, self.log))
        self._be_ready(run)

    async def _wake(self, run: EngineRun, again: TryAgain) -> None:
        start = _Start(self.managed, self.log)
        if await self._woken(run):
            await self._until_ready(run, start)
            self._be_ready(run)
        else:
            await self._finish(self._end(run))
            await self._launch(again)

    async def _launch_in(self, place: Place, start: _Start) -> EngineRun:
        start.limits = StartLimits(self.managed.model, self.log)
        try:
            return await start.limits.run(self._launched(self.launch_line(place), place, start))
        except BaseException as error:
            start.is_over = True
            ends = self._end(start.run) if start.run else self._launcher.release(self.name, place)
            await self._finish(ends)
            if isinstance(error, TimeoutError):
                why = "it could not be launched in that time"
                raise self._errors.late(start.limits.missed, why, start.first_line) from None
            raise

    async def _launched(self, line: LaunchLine, place: Place, start: _Start) -> EngineRun:
        """Launch and take the engine in one step, so that a cancelled start finds the engine and ends it."""
        launcher, server, model = self._launcher, self.managed.server, self.managed.model
        if line.place is not None and (why := await launcher.why_not(line, self._line.files)):
            raise self._errors.did_not_start(why, start.first_line)
        process: EngineProcess
        async with launcher.ownership.act():
            if server is not None:
                process = await server.load(self.managed.model_name, longest_silence(model), self.log)
            else:
                await self._prepare_cache(line, start)
                process = await launcher.launch(self.name, line, self.log)
        run = EngineRun(process, self._connect(process.address), place, start.first_line)
        if start.is_over:  # the start was cancelled, and the launcher resisted that
            await launcher.ownership.stop(process, model.stop_timeout)
            launcher.ended(process)
        else:
            start.run = self._run = run
        return run

    async def _until_ready(self, run: EngineRun, start: _Start) -> None:
        """Wait until the engine is ready. Ends it after any exception."""

        def note(problem: str) -> None:
            if problem != start.problem:
                start.limits.note_progress()
            self._note(start, ReplicaState.STARTING, problem)

        try:
            await start.limits.run(self._until_healthy(run, note), run.process)
        except BaseException as error:
            await self._finish(self._end(run))
            if isinstance(error, TimeoutError):
                why = start.problem or "no answer yet"
                raise self._errors.late(start.limits.missed, why, run.first_line) from None
            raise

    async def _until_healthy(self, run: EngineRun, note: Callable[[str], None]) -> None:
        """Wait until the engine is healthy; ``note`` gets each problem. Raises ``LoadFailed`` if it exits first."""
        printed = asyncio.Event()
        self.log.follow(printed)
        healthy = asyncio.ensure_future(self._is_healthy(run, printed, note))
        exited = asyncio.ensure_future(run.process.exited())
        try:
            await asyncio.wait({healthy, exited}, return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                raise self._errors.exited_early(exited.result(), run.first_line)
            healthy.result()
        finally:
            self.log.unfollow(printed)
            healthy.cancel()
            exited.cancel()
            del healthy, exited  # a failure refers to this frame, and its task to the failure

    async def _is_healthy(self, run: EngineRun, printed: asyncio.Event, note: Callable[[str], None]) -> None:
        await run.process.listening()
        check = HealthCheck(self.managed.driver.driver, self.managed.model.health_path)
        await check.wait_until_healthy(run.client, printed, note)

    def _be_ready(self, run: EngineRun) -> None:
        self._hung = ""
        self._is_warm = True
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch(run))
        self._become(ReplicaState.READY)

    # --- the prefix cache

    async def _prepare_cache(self, line: LaunchLine, start: _Start) -> None:
        """Have a folder for the cache of an engine that is launched with ``line``, if it is to be kept."""
        folder = str(self._cache.folder)
        if not any(folder in word for word in line.command):
            return
        try:
            await self._cache.prepare(self._line.fingerprint, line.command, self._line.files)
        except OSError as error:
            why = f"the folder for its cache cannot be made: {error} (keep_cache = 0 does without it)"
            raise self._errors.did_not_start(why, start.first_line) from None

    async def _restore_cache(self, run: EngineRun) -> None:
        if (driver := self.managed.driver.cache) is not None and self.managed.model.keep_cache:
            await self._cache.restore(driver, run.client)

    async def _save_cache(self, run: EngineRun) -> None:
        """Save the cache of an engine that was ready, before it stops or sleeps."""
        driver, model = self.managed.driver.cache, self.managed.model
        if self._is_warm and driver is not None and model.keep_cache:
            await self._cache.save(driver, run.client, model.keep_cache_wait, model.keep_cache)
        self._is_warm = False

    # --- sleep and end

    async def _woken(self, run: EngineRun) -> bool:
        return await self._agrees(self.managed.driver.sleep.wake_as_launched, run, longest_silence(self.managed.model))

    async def _sleep_or_end(self, run: EngineRun, wanted: bool) -> None:
        sleep, within = self.managed.driver.sleep.sleep_as_launched, self.managed.model.stop_timeout
        await self._save_cache(run)
        if not (wanted and await self._agrees(sleep, run, within)):
            await self._end(run)
        elif self._run is run and len(self._endings) == 1:  # else a stop is in progress too
            self._become(ReplicaState.SLEEPING)

    async def _agrees(
        self, ask: Callable[[EngineClient, LaunchSpec], Coroutine[Any, Any, bool]], run: EngineRun, timeout: float
    ) -> bool:
        """Whether the engine does in time what it is asked for."""
        async with self._launcher.ownership.act():
            try:
                return await run_within(timeout, ask(run.client, self._line.spec(run.place)))
            except Exception as error:
                _log.warning("%s could not be put to sleep or woken: %s", self.name, error or type(error).__name__)
                return False

    async def _watch(self, run: EngineRun) -> None:
        how = await run.process.exited()
        self._launcher.ended(run.process)
        if self._run is run and self.state in (ReplicaState.READY, ReplicaState.SLEEPING):
            self._clear(run)
            if run.process.ends_at_will:
                self._become(ReplicaState.STOPPED)
                return
            ended = self._hung or f"The engine {how_it_ended(how)}"
            self.is_lost = how.lost
            self._become(ReplicaState.FAILED, f"{ended}{self._errors.quote(run.first_line)}")

    def _finish(self, end: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Run ``end`` to completion, even if its caller is cancelled."""
        task = asyncio.create_task(end)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return asyncio.shield(task)

    async def _end(self, run: EngineRun, timeout: float | None = None) -> None:
        try:
            within = self.managed.model.stop_timeout if timeout is None else timeout
            if within:
                await self._save_cache(run)
            await self._launcher.ownership.stop(run.process, within)
            self._launcher.ended(run.process)
        except PluginFailed as error:
            _log.error("%s may still run: %s", self.name, error)
        finally:
            if self._run is run:
                self._clear(run)
                if self._starting is None:
                    self._become(ReplicaState.STOPPED)

    def _clear(self, run: EngineRun) -> None:
        self._run, self._is_warm = None, False
        self._launcher.vacated(run.place)
        self.log.finish()

    # --- state

    def _note(self, start: _Start, state: ReplicaState, problem: str = "") -> None:
        """Take the state of a start, and the problem that it has."""
        if not start.is_over:
            start.problem = problem
            if self.state is not ReplicaState.STOPPING:
                self._become(state, problem)

    def _become(self, state: ReplicaState, problem: str = "") -> None:
        is_new = state is not self.state
        if not is_new and (state not in _TOLD_IN_PARTS or problem == self.problem):
            self.problem = problem
            return
        self.problem = problem
        if state is ReplicaState.DOWNLOADING:
            if is_new:
                _log.info("%s is downloading %s", self.name, self.managed.model.source)
        elif problem:
            _log.warning("%s is %s: %s", self.name, state.value, problem)
        else:
            _log.info("%s is %s", self.name, state.value)
        self._tell(state)

    def _tell(self, state: ReplicaState) -> None:
        self.before, self.was_retired = self.shown, self.retired
        self.state = state
        self.retired = self.retired and state not in AT_REST
        self.shown = ReplicaState.STOPPING if self.retired else state
        self._on_state(self.shown)
