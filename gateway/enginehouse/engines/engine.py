"""One managed engine: from its files and its place to its process, its readiness, its sleep and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import (
    ConfigError,
    EnginehouseError,
    LoadCancelled,
    LoadFailed,
    NotEnoughMemory,
)
from enginehouse.domain.replica import ASSUMED_LOAD_S, AT_REST, ReplicaState
from enginehouse.engines.failures import BackOff, StartErrors, how_it_ended
from enginehouse.engines.host_context import ManagedReplica
from enginehouse.engines.launches import Launches
from enginehouse.engines.measured_facts import MeasuredFacts
from enginehouse.engines.next_launch import NextLaunch
from enginehouse.engines.probing import HealthCheck, ProbedEngine
from enginehouse.engines.start import NOWHERE, EngineRun, StartLimits, longest_silence
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.places import Place
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_UP = (ReplicaState.READY, ReplicaState.SLEEPING)
_TOLD_IN_PARTS = (ReplicaState.DOWNLOADING, ReplicaState.PLACING)
"""The states whose problems change while they last."""


class EngineListener:
    """Receives what happens to the engines of one host."""

    def engine_changed(self, engine: Engine) -> None:
        """The engine is ``shown`` in a new state, or with a new problem."""

    def engine_examined(self, engine: Engine) -> None:
        """A ready engine has told its limit, and was measured."""

    def engine_exited(self, engine: Engine) -> None:
        """The engine is no longer ready although nobody has called ``stop`` or ``evict``."""

    def running(self) -> Mapping[str, ReplicaState]:
        """The states of the replicas whose engines are neither stopped nor failed."""
        return {}


class Engine:
    """The engine of ``managed``. It alone keeps its state, from its files to its end; ``listener`` hears of it.

    ``state`` is where it is, ``shown`` what others see: a ``retired`` engine is shown as stopping until it has stopped.
    ``problem`` describes the current problem for people, empty if there is none. ``is_lost``: the last engine was lost
    with its place. ``wake_s``: how long its last start took. ``before``: what must end before it may start, such as its
    adoption. ``removal``: its end, once its replica is no longer configured.

    ``connect`` makes a client from the engine's address. ``log`` outlives the process: a restarted one continues it.
    ``launch`` has what the next engine needs, and ``facts`` what engines have shown. ``elsewhere``: a server that runs
    already loads the model. ``run``: set in the step in which it is launched.
    """

    def __init__(
        self,
        managed: ManagedReplica,
        launches: Launches,
        *,
        connect: Callable[[str], ProbedEngine],
        listener: EngineListener,
    ) -> None:
        self.name = managed.engine
        self.replica = managed.replica
        self.launches = launches
        self.connect = connect
        self.listener = listener
        self.log = LogRing()
        self.errors = StartErrors(managed.model_name, self.log)
        self.launch = NextLaunch(managed, launches, self.log, self.errors)
        self.facts = MeasuredFacts(launches)
        self.state = self.shown = ReplicaState.STOPPED
        self.retired = self.is_lost = self.is_removed = False
        self.problem = self._hung = ""
        self.wake_s, self._began = ASSUMED_LOAD_S, 0.0
        self.run: EngineRun | None = None
        self.before: asyncio.Task[None] | None = None
        self.removal: asyncio.Task[None] | None = None
        self._examined = 0
        self._noted: object = None
        self._starting: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Future[None]] = set()
        self.reconfigure(managed)
        self.begin_anew()

    # --- settings

    def reconfigure(self, managed: ManagedReplica) -> None:
        """Use these settings from now on. A running engine continues as it was launched."""
        model = managed.model
        self.managed, self.elsewhere, self.may_sleep = managed, managed.server is not None, model.sleeps
        self.check = HealthCheck(managed.driver.driver, model.health_path)
        self.launch.reconfigure(managed)
        self.facts.reconfigure(managed, self.launch.line)

    def begin_anew(self) -> None:
        """Drop what is known of engines launched so far: they do not fit the settings any more."""
        self.facts.begin_anew()
        self.back_off = BackOff()

    def remove(self) -> None:
        """Note that the replica of this engine, which is at rest, is no longer configured."""
        self.facts.forget()
        self.is_removed = True

    @property
    def is_asleep(self) -> bool:
        """Whether the engine sleeps."""
        return self.state is ReplicaState.SLEEPING

    # --- orders

    @asynccontextmanager
    async def prepared(self, evict: Sequence[str]) -> AsyncIterator[None]:
        """Have everything for a start that can be had before the replicas ``evict`` are stopped for it.

        Waits for the end of a short pause after failures. Raises ``LoadFailed`` if the engine cannot be started even
        then. If no machine has room for it, even without the others, a place is found already. The end of the context
        gives up what was not used.
        """

        def stay() -> Sequence[str]:
            return [replica for replica in self.listener.running() if replica not in evict]

        if self.back_off.failures:
            await self.back_off.wait_out(self.replica, self.problem, stay)
        if not evict:
            yield
            return
        try:
            if not self.elsewhere and self.run is None and self._starting is None:
                await self._look_ahead()
            yield
        finally:
            if self.state is ReplicaState.PLACING and self._starting is None:
                self._become(ReplicaState.STOPPED)
            await self.launch.give_up_place()

    async def _look_ahead(self) -> None:
        self.errors.first_line = self.log.written
        self._noted = look = object()
        try:
            await self.launch.look_ahead(partial(self._note, look))
        except Exception as error:
            self._become(ReplicaState.FAILED, str(error))
            if isinstance(error, ConfigError):
                raise self._unlaunchable(error) from error
            raise
        finally:
            self._noted = None

    def _unlaunchable(self, error: ConfigError) -> LoadFailed:
        return LoadFailed(f"'{self.replica}' cannot be launched: {error}")

    async def start(self) -> None:
        """Wake or launch the engine, or join its adoption, and wait until it can take requests.

        Raises ``LoadFailed`` if it cannot be started, and at once during the pause after failures. If the launch line
        changes meanwhile, the engine is launched again by the new one.
        """
        while True:
            if self.before is not None:
                await asyncio.wait({self.before})
            if self.is_removed:
                raise LoadFailed(f"'{self.replica}' is no longer configured")
            version = self.facts.version
            try:
                if self.state is not ReplicaState.READY:
                    await self.bring_up()
                    is_measured = self.replica in self.launches.learned.measured
                    if is_measured and self._examined == self.facts.version:
                        self.listener.engine_examined(self)
                    else:
                        examination = self.launches.tasks.start(self.examine())
                        if not is_measured:  # one that an earlier gateway has measured is as large as it was
                            await examination
                    if self.shown is not ReplicaState.READY:
                        raise LoadFailed(f"'{self.replica}' exited as soon as it was ready: {self.problem}")
            except EnginehouseError:
                if version == self.facts.version:
                    raise
            else:
                if version == self.facts.version:
                    return
            await self.stop()  # it was launched by the line of before

    async def bring_up(self) -> None:
        """Wake the engine if it sleeps, else launch it, and wait until it can take requests.

        A launch that finds too little memory just after another engine has ended is repeated a few times; the state
        does not show it. Waits at most ``place_timeout`` for a place. The start then takes at most ``start_timeout``,
        and ``start_silence`` without a sign of progress, not counting the end of an earlier engine. Must not be called
        for an engine that is starting or ready. Raises ``LoadFailed`` with the engine's last lines, ``NotEnoughMemory``
        if they show that reason. After any exception, also a cancellation, no process is left.
        """
        launches = self.launches
        if self.back_off.failures:
            self.back_off.refuse_too_soon(self.replica, self.problem, self.listener.running())
        self.back_off.crowded_by = ()
        try:
            if launches.strays:
                await asyncio.wait(launches.strays)
            if not (self.elsewhere or launches.places_gpus):
                await self.launch.have_gpus(is_asleep=self.state is ReplicaState.SLEEPING)
            while self._endings:
                await asyncio.wait(self._endings)
            await self._run_start(self._launch(self.run if self.state is ReplicaState.SLEEPING else None))
        except NotEnoughMemory:
            self.back_off.crowded_by = self.listener.running()
            raise
        except ConfigError as error:
            raise self._unlaunchable(error) from error
        finally:
            if self.state in AT_REST:  # the start may not have begun
                launches.gpus.release(self.replica)

    async def examine(self) -> None:
        """Measure the memory of an engine that has just become ready, and ask for its limit."""
        version = self.facts.version
        try:
            if (run := self.run) is not None and self.state is ReplicaState.READY:
                limit, _ = await asyncio.gather(self.facts.concurrency(run), self.measure())
                self.facts.report(limit)
        finally:  # an engine stays ready even if nobody waits for it any more
            if self.shown is ReplicaState.READY:
                self._examined = version
                self.listener.engine_examined(self)

    async def measure(self) -> None:
        """Measure the memory of a ready engine. A failure is logged."""
        run, version = self.run, self.facts.version
        if run is None or self.shown is not ReplicaState.READY:
            return
        memory = await self.facts.memory(run)
        if memory and version == self.facts.version and not self.is_asleep:
            self.facts.note_memory(memory)

    async def freed(self) -> None:
        """Return when no earlier gateway uses the engine any more, or when it has exited."""
        if (run := self.run) is not None and run.is_shared:
            _log.info("%s is kept until the earlier gateway no longer uses it", self.name)
            await run.freed()

    async def evict(self) -> None:
        """Free the memory of the engine: by sleep if its model says so and that frees most of it, else by its end."""
        await self.freed()
        if (run := self.run) is not None and self.state is ReplicaState.READY and not self.elsewhere:
            await self._sleep_or_stop(run, self.managed.model.evict)
            if self.run is not run:
                return
            if self.is_asleep:
                if await self._frees_by_sleep(run):
                    return
                _log.info("%s keeps its memory asleep: it is stopped to make room", self.replica)
        await self.stop()

    def rest(self) -> None:
        """Begin to put an idle engine to sleep or, where model or driver do not allow it, to stop it.

        A ready engine is no longer ready when this returns.
        """
        if (run := self.run) is not None and self.state is ReplicaState.READY:
            end = self._sleep_or_stop(run, self.managed.model.idle)
            self.launches.tasks.start(self._rested(run, end))

    def sleep_again(self) -> None:
        """Begin to put an engine to sleep that is to sleep, but that another gateway, which has gone, has woken.

        Stop it if its model may not sleep any more.
        """
        if (run := self.run) is not None and self.is_asleep:
            end = self._sleep_or_stop(run, "sleep" if self.may_sleep else "stop")
            self.launches.tasks.start(self._rested(run, end))

    async def _rested(self, run: EngineRun, end: asyncio.Future[None]) -> None:
        await end
        if self.is_asleep:
            await self._frees_by_sleep(run)
            if not self.is_asleep:  # who has woken or stopped it meanwhile knows what became of it
                return
        if not self.is_removed:
            self.listener.engine_exited(self)

    async def _frees_by_sleep(self, run: EngineRun) -> bool:
        """Measure an engine that sleeps. Whether it still sleeps and has freed half of its memory at least."""
        version = self.facts.version
        memory = await self.facts.memory(run, is_asleep=True)
        if memory is None or version != self.facts.version or not self.is_asleep:
            return False
        return self.facts.note_asleep(memory)

    def adopt(self, process: EngineProcess, place: Place, used: asyncio.Future[None] | None) -> None:
        """Begin to take over ``process``, which runs already, in place of a start. Wake it if it may be asleep.

        ``used``: ends when an earlier gateway no longer uses it; ``None`` if none does.
        """
        self.before = self.launches.tasks.start(self._adopt(process, place, used))

    async def _adopt(self, process: EngineProcess, place: Place, used: asyncio.Future[None] | None) -> None:
        self.launches.claim(place)
        self.errors.first_line = self.log.written
        self.run = run = EngineRun(process, self.connect(process.address), place, used)
        try:
            await self._run_start(self._take_over(run))
            await self.examine()
        except EnginehouseError:  # logged already
            if self.state is ReplicaState.FAILED:
                self.listener.engine_exited(self)

    def retire(self) -> None:
        """Be seen as stopping until the engine has stopped, so that it gets no new requests."""
        self.retired, self.shown = True, ReplicaState.STOPPING

    async def stop(self, timeout: float | None = None) -> None:
        """Stop the engine, also while it starts. Kill it after ``timeout`` seconds, by default ``stop_timeout``.

        The engine ends even if this is cancelled. Its memory is free when this returns. One that has failed stays so.
        """
        if self.run is not None and self.launches.gpus.now:
            await self.facts.note_end(self.run)
        if (starting := self._starting) is not None:
            self._become(ReplicaState.STOPPING)
            starting.cancel()
            await asyncio.wait({starting})
        if (run := self.run) is not None:
            self._become(ReplicaState.STOPPING)
            await self.finish(self.end(run, timeout))
        elif self._starting is None and self.state is not ReplicaState.FAILED:
            self._become(ReplicaState.STOPPED)
        if self.retired:  # no engine ran, so no event has told it
            self._become(self.state, self.problem, again=True)

    async def leave(self) -> None:
        """Stop watching an engine that runs on. A server elsewhere is not waited for while it unloads."""
        left: set[asyncio.Future[Any]] = set(self._endings) if self.elsewhere else set()
        if self.run is not None:
            left.add(self.run.exited)
            if self._watching is not None:  # it was ready once
                left.add(self._watching)
        for each in left:
            each.cancel()
        if left:
            await asyncio.wait(left)

    async def end_hung(self, problem: str) -> None:
        """Kill a ready engine that hangs. It fails with ``problem``, and may be started again."""
        if (run := self.run) is not None and self.state is ReplicaState.READY:
            self._hung = problem
            await self.launches.stop(run.process, 0)

    # --- start

    async def _run_start(self, start: Coroutine[Any, Any, None]) -> None:
        self._become(ReplicaState.STARTING)
        starting = self._starting = asyncio.create_task(start)
        try:
            await starting
        except asyncio.CancelledError:
            asked_to_stop = self.state is ReplicaState.STOPPING
            if self.run is not None and not self._endings:  # it had just become ready
                self._become(ReplicaState.STOPPING)
                await self.finish(self.end(self.run))
            self._become(ReplicaState.STOPPING if self.run else ReplicaState.STOPPED)
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

    async def _launch(self, sleeper: EngineRun | None) -> None:
        if sleeper is not None:
            if await self._wake(sleeper):
                await self._get_ready(sleeper)
                return
            await self.finish(self.end(sleeper))
        gpus, tries = self.launches.gpus, None
        while True:
            try:
                await self._get_ready()
            except NotEnoughMemory:  # noqa: PERF203 - four tries at most
                tries = tries or gpus.second_tries(self._began)
                if (pause := next(tries, None)) is None:
                    raise
                text = "%s found too little memory just after the end of an engine: it is tried again within %g s"
                _log.info(text, self.replica, pause)
                await gpus.until_room(self.replica, self.launches.learned.measured.get(self.replica), pause)
            else:
                return

    async def _take_over(self, run: EngineRun) -> None:
        if self.name in self.launches.state_file.sleepers.names:
            await self._wake(run)
        await self._get_ready(run)

    async def _get_ready(self, run: EngineRun | None = None) -> None:
        """Have ``run`` ready; without it, an engine that is launched now.

        After any exception, no process is left, and no place is taken. Raises ``LoadFailed``.
        """
        limits, place = StartLimits(self.managed.model, self.log), None
        self._noted = limits  # they identify this start: an earlier one that still runs must change nothing
        try:
            if run is None:
                self.errors.first_line = self.log.written
                note = partial(self._note, limits)
                if self.managed.model.source:
                    await self.launch.have_files(note)
                place = NOWHERE if self.elsewhere else await self.launch.find_place(note)
                if self.state is ReplicaState.PLACING:
                    self._note(limits, ReplicaState.STARTING)
                run = await limits.run(self._launched(limits, place))
                assert run is not None
            on_problem = partial(self._note_problem, limits)
            await limits.run(self.check.wait_until_healthy(run.process, run.client, self.log, on_problem), run)
            if run.exited.done():
                raise self.errors.exited_early(run.exited.result())
            if place is not None and self.launch.keeps_cache:
                await self.launch.cache.restore(self.managed, run.client)
        except BaseException as error:
            self._noted = None
            if (run := run or self.run) is not None:
                await self.finish(self.end(run))
            elif place is not None:
                await self.finish(self.launches.release(self.name, place))
            if isinstance(error, TimeoutError) and (missed := limits.missed):
                why = "it could not be launched in that time" if run is None else self.problem or "no answer yet"
                raise self.errors.late(missed, why) from None
            raise
        self._noted = None
        self._hung = ""
        run.is_warm = self.launch.keeps_cache
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch(run))
        self._become(ReplicaState.READY)

    def _note(self, start: object, state: ReplicaState, problem: str = "") -> None:
        """Take the phase of a start, or of what comes before it, and the problem that it has."""
        if start is self._noted and self.state is not ReplicaState.STOPPING:
            self._become(state, problem)

    def _note_problem(self, limits: StartLimits, problem: str) -> None:
        if problem != self.problem:
            limits.note_progress()
        self._note(limits, ReplicaState.STARTING, problem)

    async def _launched(self, limits: StartLimits, place: Place) -> EngineRun:
        """Launch and take the engine in one step, so that a cancelled start finds the engine and ends it."""
        process = await self.launch.begin(place)
        run = EngineRun(process, self.connect(process.address), place)
        if limits is not self._noted:  # the start was cancelled, and the launcher resisted that
            await self.launches.stop(process, self.managed.model.stop_timeout)
        else:
            self.run = run
        return run

    # --- sleep and end

    def _sleep_or_stop(self, run: EngineRun, wanted: str) -> asyncio.Future[None]:
        """Put a ready engine to sleep if that is ``wanted`` and the driver can, else stop it.

        The engine is no longer ready when this returns. The future ends with the sleep or the stop.
        """
        self._become(ReplicaState.STOPPING)
        return self.finish(self._sleep_or_end(run, wanted == "sleep"))

    async def _sleep_or_end(self, run: EngineRun, wanted: bool) -> None:
        if run.is_warm:
            await self._save_cache(run)
        if not (wanted and await self._sleep(run)):
            await self.end(run)
        elif self.run is run and len(self._endings) == 1:  # else a stop is in progress too
            self._become(ReplicaState.SLEEPING)

    async def _save_cache(self, run: EngineRun) -> None:
        """Save the prefix cache of an engine that was ready, before it stops or sleeps."""
        if self.launch.keeps_cache:
            await self.launch.cache.save(self.managed, run.client)
        run.is_warm = False

    async def _wake(self, run: EngineRun) -> bool:
        """Whether it wakes, or is awake already."""
        sleepers, ask = self.launches.state_file.sleepers, self.managed.driver.sleep.wake_as_launched
        async with self.launches.ownership.act():  # before it, another gateway may have woken it
            return self.name not in sleepers.names or await self._agrees(run, ask, longest_silence(self.managed.model))

    async def _sleep(self, run: EngineRun) -> bool:
        """Whether it goes to sleep."""
        ask = self.managed.driver.sleep.sleep_as_launched
        async with self.launches.ownership.act():
            return await self._agrees(run, ask, self.managed.model.stop_timeout)

    async def _agrees(
        self, run: EngineRun, ask: Callable[[EngineClient, LaunchSpec], Coroutine[Any, Any, bool]], timeout: float
    ) -> bool:
        """Whether the engine does in time what it is asked for."""
        try:
            return await run_within(timeout, ask(run.client, self.launch.line.spec(run.place)))
        except Exception as error:
            _log.warning("%s could not be put to sleep or woken: %s", self.name, error or type(error).__name__)
            return False

    async def _watch(self, run: EngineRun) -> None:
        how = await asyncio.shield(run.exited)
        self.launches.ended(run.process)
        if self.run is run and self.state in _UP:
            self._clear(run)
            if run.process.ends_at_will:
                self._become(ReplicaState.STOPPED)
                return
            ended = self._hung or f"The engine {how_it_ended(how)}"
            self.is_lost = how.lost
            self._become(ReplicaState.FAILED, f"{ended}{self.errors.quote()}")

    def finish(self, end: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Run ``end`` to completion, even if its caller is cancelled."""
        task = asyncio.create_task(end)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return asyncio.shield(task)

    async def end(self, run: EngineRun, timeout: float | None = None) -> None:
        """End ``run``: at once if ``timeout`` is 0, else within so many seconds after its cache was saved.

        The default is ``stop_timeout``.
        """
        limit = self.managed.model.stop_timeout if timeout is None else timeout
        try:
            if limit and run.is_warm:
                await self._save_cache(run)
            await self.launches.stop(run.process, limit)
        finally:
            if self.run is run:
                self._clear(run)
                if self._starting is None:
                    self._become(ReplicaState.STOPPED)

    def _clear(self, run: EngineRun) -> None:
        self.run = None
        self.launches.vacated(run.place)
        self.log.finish()

    # --- state

    def _become(self, state: ReplicaState, problem: str = "", *, again: bool = False) -> None:
        is_new = state is not self.state
        if not (is_new or again) and (state not in _TOLD_IN_PARTS or problem == self.problem):
            self.problem = problem
            return
        self.problem = problem
        if state is ReplicaState.DOWNLOADING:
            if is_new:
                _log.info("%s is downloading %s", self.name, self.managed.model.source)
        elif problem and not again:
            _log.warning("%s is %s: %s", self.name, state.value, problem)
        elif not again:
            _log.info("%s is %s", self.name, state.value)
        before, was_retired = self.shown, self.retired
        self.state = state
        self.retired = self.retired and state not in AT_REST
        self.shown = shown = ReplicaState.STOPPING if self.retired else state
        now = asyncio.get_running_loop().time()
        if state is ReplicaState.STARTING:  # again after it has waited for a place
            self._began = now
        elif state is ReplicaState.READY:
            self.wake_s = now - self._began
            self.back_off.ready_at = now
        elif state is ReplicaState.FAILED:
            self.back_off.failed(now)
        sleepers = self.launches.state_file.sleepers
        if self.may_sleep or self.name in sleepers.names:
            sleepers.follow(self.name, state, may_sleep=self.may_sleep)
        if state is not ReplicaState.SLEEPING:
            self.launches.learned.asleep.pop(self.replica, None)
        if state in AT_REST:
            self.launches.gpus.release(self.replica)
        self.listener.engine_changed(self)
        if shown in (*AT_REST, ReplicaState.SLEEPING) and before in (*_UP, ReplicaState.STOPPING):
            self.launches.gpus.note_end()
        if (state in AT_REST and before in _UP) or (state is ReplicaState.FAILED and was_retired):
            self.listener.engine_exited(self)
