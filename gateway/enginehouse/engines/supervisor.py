"""One managed engine: started, ready, gone."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Sequence
from typing import NamedTuple

from enginehouse.config.schema import Model
from enginehouse.domain.errors import LoadFailed
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.bounded import bounded
from enginehouse.engines.health_check import why_unhealthy
from enginehouse.engines.launch_line import launch_line
from enginehouse.engines.log_ring import LogRing
from enginehouse.engines.ports import Ports
from enginehouse.interfaces.drivers import Driver, EngineClient
from enginehouse.interfaces.launchers import EngineProcess, Launcher

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
_PAUSE_GROWTH = 1.5
_PROBE_TIMEOUT_S = 5.0
_DETAILED_LINES, _QUOTED_LINES = 20, 3


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
        self._starting: asyncio.Task[_Engine] | None = None
        self._engine: _Engine | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def address(self) -> str | None:
        """Where the engine listens, while it is ready."""
        return self._engine.process.address if self._engine else None

    async def start(self) -> None:
        """Launch the engine and wait until it can take requests, ``start_timeout`` at the most.

        Only for an engine that is stopped or failed. Raises ``LoadFailed`` with the engine's last lines, and
        ``ConfigError`` when it is configured so that it cannot be launched. Whenever this raises, nothing of the engine
        is left, even if it was cancelled.
        """
        self._become(ReplicaState.STARTING)
        starting = self._starting = asyncio.create_task(self._bring_up())
        try:
            self._engine = await starting
        except asyncio.CancelledError:
            if self.state is ReplicaState.STOPPING:
                raise LoadFailed(f"Model '{self._model_name}' was stopped while it started") from None
            self._become(ReplicaState.STOPPED)
            raise
        except Exception as error:
            self._become(ReplicaState.FAILED, str(error))
            raise
        finally:
            self._starting = None
        self._watching = asyncio.create_task(self._watch(self._engine))
        self._become(ReplicaState.READY)

    async def stop(self, timeout: float | None = None) -> None:
        """Stop the engine, also while it starts; after ``timeout`` seconds (``stop_timeout`` if left out) kill it."""
        if (starting := self._starting) is not None:
            self._become(ReplicaState.STOPPING)
            starting.cancel()
            await asyncio.wait({starting})
        if (engine := self._engine) is not None:
            self._become(ReplicaState.STOPPING)
            await engine.process.stop(self._model.stop_timeout if timeout is None else timeout)
            self._forget(engine)
        if self._engine is None and self._starting is None:
            self._become(ReplicaState.STOPPED)

    async def _bring_up(self) -> _Engine:
        deadline = asyncio.get_running_loop().time() + self._model.start_timeout
        port = self._ports.take()
        first_line = self.log.written
        process: EngineProcess | None = None
        try:
            line = launch_line(self._model_name, self._model, self._driver, port)
            launching = self._launcher.launch(self.name, line, self.log.write)
            process = await bounded(launching, self._model.start_timeout)
            engine = _Engine(process, port, first_line)
            await self._until_ready(engine, deadline)
        except BaseException as error:
            await asyncio.shield(self._give_up(process, port))
            if isinstance(error, TimeoutError):
                why = self.problem or "it could not be launched in that time"
                late = f"it was not ready within {self._model.start_timeout:g} s ({why})"
                raise self._did_not_start(late, first_line) from None
            raise
        return engine

    async def _give_up(self, process: EngineProcess | None, port: int) -> None:
        if process is not None:
            await process.stop(self._model.stop_timeout)
        self._ports.give_back(port)

    async def _until_ready(self, engine: _Engine, deadline: float) -> None:
        ready = asyncio.ensure_future(self._probe_until_ready(self._connect(engine.process.address)))
        gone = asyncio.ensure_future(engine.process.exited())
        try:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
            await asyncio.wait({ready, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise self._did_not_start(f"it ended {_how(gone.result())} while it started", engine.first_line)
            if not ready.done():
                raise TimeoutError
            ready.result()
        finally:
            ready.cancel()
            gone.cancel()

    async def _probe_until_ready(self, client: EngineClient) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            await asyncio.sleep(pause)
            why = await why_unhealthy(self._driver, client, _PROBE_TIMEOUT_S)
            if why is None:
                return
            self.problem = why
            pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE_S)

    async def _watch(self, engine: _Engine) -> None:
        status = await engine.process.exited()
        if self._engine is engine and self.state is not ReplicaState.STOPPING:
            self._forget(engine)
            self._become(ReplicaState.FAILED, f"The engine ended {_how(status)}{self._quote(engine.first_line)}")

    def _forget(self, engine: _Engine) -> None:
        if self._engine is engine:
            self._engine = None
            self._ports.give_back(engine.port)
            self.log.finish()

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

    def _did_not_start(self, why: str, first_line: int) -> LoadFailed:
        return LoadFailed(
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


def _how(status: int) -> str:
    """How an engine ended, from its exit status."""
    if status >= 0:
        return f"with status {status}"
    try:
        return f"by {signal.Signals(-status).name}"
    except ValueError:
        return f"by signal {-status}"
