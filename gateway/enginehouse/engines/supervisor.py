"""One managed engine: its states, its sleep and its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from functools import partial
from typing import Any

from enginehouse.domain.errors import LoadCancelled, NotEnoughMemory, PluginFailed
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.engine_setup import EngineRun, EngineSetup
from enginehouse.engines.engine_start import EngineStart
from enginehouse.engines.host_launcher import HostLauncher
from enginehouse.engines.host_replicas import ManagedReplica
from enginehouse.engines.second_tries import TryAgain, never_again
from enginehouse.engines.start_errors import how_it_ended
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.interfaces.places import Place

_log = logging.getLogger(__name__)

_TOLD_IN_PARTS = (ReplicaState.DOWNLOADING, ReplicaState.PLACING)
"""The states whose problems change while they last."""


class Supervisor:
    """Starts, watches and stops the engine of ``managed``, on the orders of its pool.

    ``on_state`` gets every new state. ``problem`` describes the current problem for people, empty if there is none.
    ``is_lost``: the last engine was lost with its place.
    """

    def __init__(
        self,
        managed: ManagedReplica,
        launcher: HostLauncher,
        *,
        connect: Callable[[str], EngineClient],
        on_state: Callable[[ReplicaState], None],
    ) -> None:
        self.setup = EngineSetup(managed, launcher, connect)
        self.name = self.setup.name
        self.log = self.setup.log
        self.state = ReplicaState.STOPPED
        self.problem = ""
        self.is_lost = False
        self._hung = ""
        self._launcher = launcher
        self._on_state = on_state
        self._starting: asyncio.Task[None] | None = None
        self._engine: EngineRun | None = None
        self._watching: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Future[None]] = set()

    @property
    def address(self) -> str | None:
        """The address at which the engine listens; ``None`` unless it is ready."""
        return self._engine.process.address if self._engine and self.state is ReplicaState.READY else None

    @property
    def place(self) -> Place | None:
        """Where the engine runs; ``None`` if it does not."""
        return self._engine.place if self._engine else None

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
        sleeper = self._engine if self.state is ReplicaState.SLEEPING else None
        await self._bring_up(self._wake(sleeper, again) if sleeper else self._launch(again))

    async def prepare(self) -> None:
        """Find out whether an engine that must be launched can be, before others are stopped for it.

        If no machine has room for it, even without them, a place is found first. Raises ``LoadFailed``.
        """
        setup, state = self.setup, self.state
        if setup.elsewhere or self._engine is not None or self._starting is not None:
            return
        try:
            if why := await setup.why_not():
                raise setup.errors.did_not_start(why, self.log.written)
            await setup.find_room(partial(self._become, ReplicaState.PLACING))
        except asyncio.CancelledError:
            self._become(state)
            raise
        except Exception as error:
            self._become(ReplicaState.FAILED, str(error))
            raise

    async def adopt(self, process: EngineProcess, place: Place, *, asleep: bool = False) -> None:
        """Take over an engine of an earlier gateway, instead of ``start``. Wake it if it may be ``asleep``."""
        self._launcher.claim(place)
        self._engine = engine = EngineRun(process, self.setup.connect(process.address), place, self.log.written)
        await self._bring_up(self._take_over(engine, asleep))

    async def stop(self, timeout: float | None = None) -> None:
        """Stop the engine, also while it starts. Kill it after ``timeout`` seconds, by default ``stop_timeout``.

        The engine ends even if this is cancelled.
        """
        if (starting := self._starting) is not None:
            self._become(ReplicaState.STOPPING)
            starting.cancel()
            await asyncio.wait({starting})
        if (engine := self._engine) is not None:
            self._become(ReplicaState.STOPPING)
            await self.finish(self.end(engine, timeout))
        elif self._starting is None:
            self._become(ReplicaState.STOPPED)

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
        assert self._engine is not None
        self._become(ReplicaState.STOPPING)
        model = self.setup.managed.model
        wanted = model.evict if evicted else model.idle
        return self.finish(self._sleep_or_end(self._engine, wanted == "sleep"))

    async def memory(self) -> int | None:
        """The bytes of main memory that the engine takes now; ``None`` if unknown, or if no engine runs."""
        return await self._engine.process.memory() if self._engine else None

    async def processor_seconds(self) -> float | None:
        """The processor time that the engine has taken so far; ``None`` if unknown, or if no engine runs."""
        return await self._engine.process.processor_seconds() if self._engine else None

    async def end_hung(self, problem: str) -> None:
        """Kill a ready engine that hangs. It fails with ``problem``, and may be started again."""
        if (engine := self._engine) is not None and self.state is ReplicaState.READY:
            self._hung = problem
            await self._launcher.ownership.stop(engine.process, 0)

    async def processes(self) -> Collection[int]:
        """The ids of the engine's processes; empty if it does not run on this machine, or does not run."""
        return await self._engine.process.processes() if self._engine else ()

    @property
    def is_asleep(self) -> bool:
        """Whether the engine sleeps."""
        return self.state is ReplicaState.SLEEPING

    async def concurrency(self) -> int | None:
        """The number of requests that the ready engine reports to serve at once; ``None`` if it reports none."""
        if self._engine is None or self.state is not ReplicaState.READY:
            return None
        return await self.setup.concurrency(self._engine)

    # --- start

    async def _bring_up(self, start: Coroutine[Any, Any, None]) -> None:
        self._become(ReplicaState.STARTING)
        starting = self._starting = asyncio.create_task(start)
        try:
            await starting
        except asyncio.CancelledError:
            asked_to_stop = self.state is ReplicaState.STOPPING
            if self._engine is not None and not self._endings:  # it had just become ready
                self._become(ReplicaState.STOPPING)
                await self.finish(self.end(self._engine))
            self._become(ReplicaState.STOPPING if self._engine else ReplicaState.STOPPED)
            if not asked_to_stop:
                raise
        except Exception as error:
            self._become(ReplicaState.FAILED, str(error))
            raise
        finally:
            self._starting = None
            del starting  # a failure refers to this frame, and its task to the failure
        if self.state is not ReplicaState.READY:
            raise LoadCancelled(f"Model '{self.setup.managed.model_name}' was stopped while it started")

    async def _launch(self, again: TryAgain) -> None:
        try:
            engine = await EngineStart(self.setup, self).launch()
        except NotEnoughMemory:
            if not await again():
                raise
        else:
            self._be_ready(engine)
            return
        await self._launch(again)

    async def _take_over(self, engine: EngineRun, asleep: bool) -> None:
        if asleep:
            await self._woken(engine)
        await EngineStart(self.setup, self).until_ready(engine)
        self._be_ready(engine)

    async def _wake(self, engine: EngineRun, again: TryAgain) -> None:
        start = EngineStart(self.setup, self)
        if await self._woken(engine):
            await start.until_ready(engine)
            self._be_ready(engine)
        else:
            await self.finish(self.end(engine))
            await self._launch(again)

    async def _woken(self, engine: EngineRun) -> bool:
        async with self._launcher.ownership.act():
            return await self.setup.wake(engine)

    def _be_ready(self, engine: EngineRun) -> None:
        self._hung = ""
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch(engine))
        self._become(ReplicaState.READY)

    # --- from a start

    def note(self, state: ReplicaState, problem: str = "") -> None:
        if self.state is not ReplicaState.STOPPING:
            self._become(state, problem)

    def launched(self, engine: EngineRun) -> None:
        self._engine = engine

    # --- end

    async def _watch(self, engine: EngineRun) -> None:
        how = await engine.process.exited()
        self._launcher.ended(engine.process)
        if self._engine is engine and self.state in (ReplicaState.READY, ReplicaState.SLEEPING):
            self._clear(engine)
            if engine.process.ends_at_will:
                self._become(ReplicaState.STOPPED)
                return
            ended = self._hung or f"The engine {how_it_ended(how)}"
            problem = f"{ended}{self.setup.errors.quote(engine.first_line)}"
            self.is_lost = how.lost
            self._become(ReplicaState.FAILED, problem)

    def finish(self, end: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Run ``end`` to completion, even if its caller is cancelled."""
        task = asyncio.create_task(end)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return asyncio.shield(task)

    async def end(self, engine: EngineRun, timeout: float | None = None) -> None:
        try:
            within = self.setup.managed.model.stop_timeout if timeout is None else timeout
            await self._launcher.ownership.stop(engine.process, within)
            self._launcher.ended(engine.process)
        except PluginFailed as error:
            _log.error("%s may still run: %s", self.name, error)
        finally:
            if self._engine is engine:
                self._clear(engine)
                if self._starting is None:
                    self._become(ReplicaState.STOPPED)

    async def _sleep_or_end(self, engine: EngineRun, wanted: bool) -> None:
        if not (wanted and await self._falls_asleep(engine)):
            await self.end(engine)
        elif self._engine is engine and len(self._endings) == 1:  # else a stop is in progress too
            self._become(ReplicaState.SLEEPING)

    async def _falls_asleep(self, engine: EngineRun) -> bool:
        async with self._launcher.ownership.act():
            return await self.setup.sleep(engine)

    def _clear(self, engine: EngineRun) -> None:
        self._engine = None
        self._launcher.vacated(engine.place)
        self.log.finish()

    # --- state

    def _become(self, state: ReplicaState, problem: str = "") -> None:
        is_new = state is not self.state
        if not is_new and (state not in _TOLD_IN_PARTS or problem == self.problem):
            self.problem = problem
            return
        self.problem, self.state = problem, state
        if state is ReplicaState.DOWNLOADING:
            if is_new:
                _log.info("%s is downloading %s", self.name, self.setup.managed.model.source)
        elif problem:
            _log.warning("%s is %s: %s", self.name, state.value, problem)
        else:
            _log.info("%s is %s", self.name, state.value)
        self._on_state(state)
