"""One managed engine: started, ready, asleep, gone."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from enginehouse.config.schema import Model
from enginehouse.domain.errors import LoadFailed, NotEnoughMemory
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.bounded import bounded
from enginehouse.engines.health_check import until_healthy
from enginehouse.engines.last_words import tell_of_too_little_memory
from enginehouse.engines.launch_line import launch_line
from enginehouse.engines.ports import Ports
from enginehouse.interfaces.drivers import Driver, EngineClient
from enginehouse.interfaces.launchers import EngineProcess, Launcher, LaunchLine
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_READ_LINES, _DETAILED_LINES, _QUOTED_LINES = 500, 20, 3


class _Engine(NamedTuple):
    process: EngineProcess
    port: int
    first_line: int


class Supervisor:
    """Starts, watches and stops the engine of one managed backend; when, others decide.

    ``on_state`` is called with every new state. ``problem`` says for people what is wrong, empty if nothing is. ``log``
    lives as long as the supervisor: an engine that is started again goes on in it.
    """

    def __init__(
        self,
        name: str,
        model_name: str,
        model: Model,
        *,
        driver: Driver,
        launcher: Launcher,
        ports: Ports,
        connect: Callable[[str], EngineClient],
        on_state: Callable[[ReplicaState], None],
    ) -> None:
        self.name = name
        self.state = ReplicaState.STOPPED
        self.problem = ""
        self.log = LogRing()
        self._model_name = model_name
        self._model = model
        self._driver = driver
        self._launcher = launcher
        self._ports = ports
        self._connect = connect
        self._on_state = on_state
        self._starting: asyncio.Task[None] | None = None
        self._engine: _Engine | None = None
        self._watching: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Future[None]] = set()

    def reconfigure(self, model: Model, driver: Driver) -> None:
        """From now on the model and its driver are these; an engine that runs goes on as it was launched."""
        self._model = model
        self._driver = driver

    @property
    def address(self) -> str | None:
        """Where the engine listens, while it is ready."""
        return self._engine.process.address if self._engine and self.state is ReplicaState.READY else None

    async def start(self) -> None:
        """Wake the engine if it sleeps, else launch it, and wait until it can take requests.

        Takes ``start_timeout`` at the most, after whatever is being stopped has gone. Not for an engine that is
        starting or ready. Raises ``LoadFailed`` with the engine's last lines, ``NotEnoughMemory`` if that is what these
        tell of, and ``ConfigError`` when it is configured so that it cannot be launched. Whenever this raises, nothing
        of the engine is left, even if it was cancelled.
        """
        while self._endings:
            await asyncio.wait(self._endings)
        sleeper = self._engine if self.state is ReplicaState.SLEEPING else None
        await self._bring_up(self._wake(sleeper) if sleeper else self._launch())

    async def adopt(self, process: EngineProcess, port: int) -> None:
        """Take over an engine that was launched before, in place of ``start``."""
        self._ports.claim(port)
        self._engine = engine = _Engine(process, port, self.log.written)
        await self._bring_up(self._take_over(engine))

    async def stop(self, timeout: float | None = None) -> None:
        """Stop the engine, also while it starts; after ``timeout`` seconds (``stop_timeout`` if left out) kill it.

        The engine is stopped to the end even if this is cancelled.
        """
        if (starting := self._starting) is not None:
            self._become(ReplicaState.STOPPING)
            starting.cancel()
            await asyncio.wait({starting})
        if (engine := self._engine) is not None:
            self._become(ReplicaState.STOPPING)
            await self._ending(self._end(engine, timeout))
        elif self._starting is None:
            self._become(ReplicaState.STOPPED)

    def rest(self) -> asyncio.Future[None]:
        """Let a ready engine sleep if its model says so and its driver can, else stop it.

        It is not ready any more when this returns; what is returned can be waited for.
        """
        assert self._engine is not None
        self._become(ReplicaState.STOPPING)
        return self._ending(self._lay_down(self._engine))

    async def memory(self) -> int | None:
        """The bytes of main memory that the engine takes now; ``None`` if unknown, or if there is none."""
        return await self._engine.process.memory() if self._engine else None

    def launch_line(self, port: int) -> LaunchLine:
        """How the engine is launched on ``port``. Raises ``ConfigError``."""
        return launch_line(self._model_name, self._model, self._driver, port)

    # --- up

    async def _bring_up(self, way: Coroutine[Any, Any, None]) -> None:
        self._become(ReplicaState.STARTING)
        starting = self._starting = asyncio.create_task(way)
        try:
            await starting
        except asyncio.CancelledError:
            asked_to_stop = self.state is ReplicaState.STOPPING
            if self._engine is not None and not self._endings:  # it had just become ready
                self._become(ReplicaState.STOPPING)
                await self._ending(self._end(self._engine))
            self._become(ReplicaState.STOPPING if self._engine else ReplicaState.STOPPED)
            if not asked_to_stop:
                raise
        except Exception as error:
            self._become(ReplicaState.FAILED, str(error))
            raise
        finally:
            self._starting = None
        if self.state is not ReplicaState.READY:
            raise LoadFailed(f"Model '{self._model_name}' was stopped while it started")

    async def _launch(self) -> None:
        deadline = self._deadline()
        port = self._ports.take()
        first_line = self.log.written
        try:
            line = self.launch_line(port)
            engine = await bounded(self._launched(line, first_line), self._model.start_timeout)
        except BaseException as error:
            if self._engine is not None:
                await self._ending(self._end(self._engine))
            else:
                self._ports.give_back(port)
            if isinstance(error, TimeoutError):
                raise self._late("it could not be launched in that time", first_line) from None
            raise
        await self._until_ready(engine, deadline)

    async def _launched(self, line: LaunchLine, first_line: int) -> _Engine:
        """Launch, and have the engine in hand in the same step: whoever is cancelled meanwhile finds it there."""
        attempt = self._starting
        process = await self._launcher.launch(self.name, line, self.log)
        engine = _Engine(process, line.port, first_line)
        if self._starting is not attempt:  # nobody waited for a launcher that took so long
            await process.stop(self._model.stop_timeout)
        else:
            self._engine = engine
        return engine

    async def _take_over(self, engine: _Engine) -> None:
        if self._model.idle == "sleep":  # nobody knows whether it sleeps, and its health does not always tell
            await self._agrees(self._driver.wake, engine, self._model.start_timeout)
        await self._until_ready(engine, self._deadline())

    async def _wake(self, engine: _Engine) -> None:
        deadline = self._deadline()
        if await self._agrees(self._driver.wake, engine, self._model.start_timeout):
            await self._until_ready(engine, deadline)
        else:
            await self._ending(self._end(engine))
            await self._launch()

    async def _until_ready(self, engine: _Engine, deadline: float) -> None:
        client = self._connect(engine.process.address)
        ready = asyncio.ensure_future(until_healthy(self._driver, client, self._note))
        gone = asyncio.ensure_future(engine.process.exited())
        try:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await asyncio.wait({ready, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise self._ended_early(gone.result(), engine.first_line)
            if not ready.done():
                raise TimeoutError
            ready.result()
        except BaseException as error:
            await self._ending(self._end(engine))
            if isinstance(error, TimeoutError):
                raise self._late(self.problem or "no answer yet", engine.first_line) from None
            raise
        finally:
            ready.cancel()
            gone.cancel()
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch(engine))
        self._become(ReplicaState.READY)

    def _note(self, problem: str) -> None:
        self.problem = problem

    # --- down

    async def _watch(self, engine: _Engine) -> None:
        status = await engine.process.exited()
        if self._engine is engine and self.state in (ReplicaState.READY, ReplicaState.SLEEPING):
            self._forget(engine)
            self._become(ReplicaState.FAILED, f"The engine ended {_how(status)}{self._quote(engine.first_line)}")

    def _ending(self, way: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Go this ``way`` to its end, whether or not somebody waits for it."""
        task = asyncio.ensure_future(way)
        self._endings.add(task)
        task.add_done_callback(self._endings.discard)
        return asyncio.shield(task)

    async def _end(self, engine: _Engine, timeout: float | None = None) -> None:
        try:
            await engine.process.stop(self._model.stop_timeout if timeout is None else timeout)
        finally:
            if self._engine is engine:
                self._forget(engine)
                if self._starting is None:
                    self._become(ReplicaState.STOPPED)

    async def _lay_down(self, engine: _Engine) -> None:
        wanted = self._model.idle == "sleep"
        if not (wanted and await self._agrees(self._driver.sleep, engine, self._model.stop_timeout)):
            await self._end(engine)
        elif self._engine is engine and len(self._endings) == 1:  # else it is being stopped meanwhile
            self._become(ReplicaState.SLEEPING)

    async def _agrees(
        self, ask: Callable[[EngineClient], Coroutine[Any, Any, bool]], engine: _Engine, timeout: float
    ) -> bool:
        try:
            return await bounded(ask(self._connect(engine.process.address)), timeout)
        except Exception as error:
            _log.warning("%s could not be put to sleep or woken: %s", self.name, error or repr(error))
            return False

    def _forget(self, engine: _Engine) -> None:
        self._engine = None
        self._ports.give_back(engine.port)
        self.log.finish()

    # --- what is told of it

    def _become(self, state: ReplicaState, problem: str = "") -> None:
        self.problem = problem
        if state is self.state:
            return
        self.state = state
        if problem:
            _log.warning("%s is %s: %s", self.name, state.value, problem)
        else:
            _log.info("%s is %s", self.name, state.value)
        self._on_state(state)

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._model.start_timeout

    def _late(self, why: str, first_line: int) -> LoadFailed:
        return self._did_not_start(f"it was not ready within {self._model.start_timeout:g} s ({why})", first_line)

    def _ended_early(self, status: int | None, first_line: int) -> LoadFailed:
        lines = self._last_lines(_READ_LINES, first_line)
        kind = NotEnoughMemory if tell_of_too_little_memory(status, lines) else LoadFailed
        return self._did_not_start(f"it ended {_how(status)} while it started", first_line, kind)

    def _did_not_start(self, why: str, first_line: int, kind: type[LoadFailed] = LoadFailed) -> LoadFailed:
        return kind(
            f"Model '{self._model_name}' did not start: {why}{self._quote(first_line)}",
            details={"model": self._model_name, "log": self._last_lines(_DETAILED_LINES, first_line)},
        )

    def _quote(self, first_line: int) -> str:
        """The engine's last words, to be put behind a sentence."""
        lines = self._last_lines(_QUOTED_LINES, first_line)
        return "; its last lines were: " + " | ".join(lines) if lines else ""

    def _last_lines(self, count: int, first_line: int) -> Sequence[str]:
        self.log.finish()
        return self.log.tail(count, since=first_line)


def _how(status: int | None) -> str:
    """How an engine ended, from its exit status."""
    if status is None:
        return "by itself"
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"
