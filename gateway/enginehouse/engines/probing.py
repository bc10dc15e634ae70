"""Asks engines for their health, while they start and regularly, and for the models that they serve."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass
from typing import Protocol

from enginehouse.aio.timeouts import run_within, wait_within
from enginehouse.config.model_settings import ANY_ANSWER
from enginehouse.config.schema import CheckSettings
from enginehouse.domain.errors import EnginehouseError, Overloaded, UpstreamTimeout
from enginehouse.domain.replica import Health
from enginehouse.fleet.fleet import Fleet
from enginehouse.interfaces.driver_support import DriverSupport
from enginehouse.interfaces.drivers import Driver, EngineClient, ServedModel
from enginehouse.interfaces.launchers import EngineProcess
from enginehouse.telemetry.log_ring import LogRing

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.004, 0.1
_PAUSE_GROWTH = 1.3
_REST = 1 / 8
"""The part of a pause that no line ends: an engine that prints all the time is asked less and less too."""
_TIMEOUT_S = 5.0


class Late(str):
    """The reason of a check that has had no answer in time."""

    __slots__ = ()


class ProbedEngine(EngineClient, Protocol):
    """``last``: the last question and the status of its answer, for people; empty before the first answer."""

    last: str


class HealthCheck:
    """Asks an engine through its driver or, with a ``path``, on that page.

    The engine is healthy if the page answers 200. With the path ``none``, any answer counts.
    """

    def __init__(self, driver: Driver, path: str = "") -> None:
        self._driver = driver
        self._path = path

    async def wait_until_healthy(
        self, process: EngineProcess, engine: ProbedEngine, log: LogRing, on_problem: Callable[[str], None]
    ) -> None:
        """Wait until ``process`` takes connections. Then ask until the engine is healthy.

        It is asked at growing intervals, and soon after it has printed something. ``on_problem`` gets each problem.
        """
        pause, printed = _FIRST_PAUSE_S, asyncio.Event()
        log.follow(printed)
        try:
            with suppress(EnginehouseError):  # logged already; the engine's health decides
                await process.listening()
            while True:
                try:
                    problem = await self.problem(engine, _TIMEOUT_S)
                except Overloaded as error:
                    problem = str(error)
                if problem is None:
                    return
                on_problem(problem)
                rest = max(_FIRST_PAUSE_S, pause * _REST)
                await asyncio.sleep(rest)
                printed.clear()  # engines print a line about each health check too
                await wait_within(pause - rest, printed)
                pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE_S)
        finally:
            log.unfollow(printed)

    async def problem(self, engine: ProbedEngine, timeout: float) -> str | None:
        """The reason, for people, why the engine cannot take requests now; ``None`` if it can.

        It is ``Late`` if there was no answer. Takes at most ``timeout`` seconds, even if the driver resists its
        cancellation. Raises nothing that a driver raises, except ``Overloaded``: then the gateway could not ask.
        """
        engine.last = ""  # a driver's ``False`` has no reason with it
        try:
            asked = self._ask_page(engine) if self._path else self._driver.healthy(engine)
            if await run_within(timeout, asked):
                return None
        except TimeoutError:
            return Late(f"no answer to its health check within {timeout:g} s")
        except Overloaded:
            raise
        except UpstreamTimeout as error:
            return Late(error)
        except EnginehouseError as error:
            return str(error)
        except Exception as error:
            _log.exception("The health check of %s failed", type(self._driver).__name__)
            return f"its health check failed with {type(error).__name__}"
        return engine.last or "its driver says that it is not healthy"

    async def _ask_page(self, engine: EngineClient) -> bool:
        if self._path == ANY_ANSWER:
            await engine.request("GET", "/")
            return True
        return (await engine.request("GET", self._path)).status == 200


_PROBES_PER_DISCOVERY = 6
_IN_DOUBT = 0.2
"""The share of ``checks.interval`` until the next probe while a verdict is in doubt."""
_SHORTEST_PAUSE_S = 0.01
_SOON_S = 1.0
"""The longest time until the first probe of a backend that has just been found healthy."""


class Prober:
    """Probes every backend in a loop of its own: always its health, and now and then its models.

    ``fleet`` gets the results. Needs a running event loop. ``random`` returns a number from 0 to 1; it spreads the
    probes of many backends.
    """

    def __init__(self, fleet: Fleet, checks: CheckSettings, random: Callable[[], float] = random.random) -> None:
        self._fleet = fleet
        self._checks = checks
        self._random = random
        self._loops: dict[str, _ProbeLoop] = {}

    def add(
        self,
        name: str,
        driver: DriverSupport,
        engine: ProbedEngine,
        check: HealthCheck | None = None,
        on_concurrency: Callable[[int | None], None] | None = None,
        on_models: Callable[[Sequence[ServedModel]], None] | None = None,
        *,
        is_healthy: bool = False,
    ) -> None:
        """Probe the backend ``name``. Replaces an earlier backend of this name.

        The first probe follows at once or, if the backend has just been found healthy (``is_healthy``), a little later:
        its first requests come before. ``check``: by default, that of the driver.

        ``on_concurrency`` gets the number of requests that the engine says it serves at once, whenever it is asked.
        ``on_models`` gets the models that it lists, before the fleet does.
        """
        if name in self._loops:
            self.remove(name)
        self._loops[name] = _ProbeLoop(
            name,
            driver,
            engine,
            check or HealthCheck(driver.driver),
            self._fleet,
            self._checks,
            self._random,
            on_concurrency,
            on_models,
            is_healthy,
        )

    def reconfigure(self, checks: CheckSettings) -> None:
        """Use ``checks`` for backends added from now on."""
        self._checks = checks

    def remove(self, name: str) -> None:
        """Stop probing the backend. The fleet gets no more results of it."""
        if (loop := self._loops.pop(name, None)) is not None:
            loop.stop()

    def late_probes(self, name: str) -> int:
        """How many of the backend's last probes, in a row, had no answer in time; 0 if it is not probed."""
        loop = self._loops.get(name)
        return 0 if loop is None else loop.late_probes

    async def first_round(self, silence: float | None = None) -> None:
        """Wait until every present backend has been probed once, or was removed.

        With ``silence``, wait no longer when for so many seconds no backend has been probed: the others may be hung.
        """
        waiting = {asyncio.ensure_future(loop.probed.wait()) for loop in self._loops.values()}
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, timeout=silence, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    return
        finally:
            for each in waiting:
                each.cancel()

    def close(self) -> None:
        for name in list(self._loops):
            self.remove(name)


@dataclass(eq=False)
class _ProbeLoop:
    """The probes of one backend. ``probed`` is set after the first one. ``late_probes``: the last ones in a row."""

    name: str
    driver: DriverSupport
    engine: ProbedEngine
    check: HealthCheck
    fleet: Fleet
    checks: CheckSettings
    random: Callable[[], float]
    on_concurrency: Callable[[int | None], None] | None
    on_models: Callable[[Sequence[ServedModel]], None] | None
    is_healthy: InitVar[bool]

    def __post_init__(self, is_healthy: bool) -> None:
        self.probed = asyncio.Event()
        self.late_probes = 0
        self._discovery_in = 0
        self._discovery_problem = ""
        self._probing = asyncio.create_task(self._run(is_healthy))

    def stop(self) -> None:
        self._probing.cancel()
        del self._probing  # once ended, it refers to this object
        self.probed.set()

    async def _run(self, is_healthy: bool) -> None:
        if is_healthy:
            self.probed.set()
            await asyncio.sleep(min(_SOON_S, self._pause(True, Health.UNKNOWN)))
        while True:
            healthy = False
            try:
                healthy = await self._probe()
            except Exception:
                _log.exception("A probe of backend %s met a defect of the gateway; the next one follows", self.name)
            self.probed.set()
            await asyncio.sleep(self._pause(healthy, self.fleet.health(self.name)))

    async def _probe(self) -> bool:
        try:
            why = await self.check.problem(self.engine, self.checks.timeout)
        except Overloaded:  # no verdict on the engine
            return self.fleet.health(self.name) is Health.HEALTHY
        late = isinstance(why, Late)
        self.late_probes = self.late_probes + 1 if late else 0
        if why is None:
            why = await self._test()
        if why is not None:
            self.fleet.probe_failed(self.name, str(why), late=late)  # a text of its own kind cannot be sent as JSON
            return False
        await self._discover(at_once=self.fleet.health(self.name) is not Health.HEALTHY)
        self.fleet.probe_succeeded(self.name)  # after the models: whoever sees a healthy backend knows them
        return True

    async def _test(self) -> str | None:
        """Have the driver test an engine that failed requests. The reason if it still fails."""
        model = self.fleet.model_to_test(self.name)
        if model is None:
            return None
        try:
            verdict = await run_within(self.checks.timeout, self.driver.driver.serves(self.engine, model))
        except (TimeoutError, Overloaded):
            return None
        except Exception as error:
            return f"it failed a test request: {error or type(error).__name__}"
        return "it failed a test request" if verdict is False else None

    async def _discover(self, at_once: bool) -> None:
        """List the models if it is time to. After a failure, the next probe tries again.

        The list is published last: nothing runs between that and the verdict of the same probe, so no request finds a
        model whose backend has no health yet.
        """
        self._discovery_in -= 1
        if self._discovery_in > 0 and not at_once:
            return
        try:
            served = await run_within(self.checks.timeout, self.driver.driver.models(self.engine))
        except TimeoutError:
            self._note(f"no answer within {self.checks.timeout:g} s")
        except Overloaded as error:  # no verdict on the engine
            _log.debug("Backend %s was not asked for its models: %s", self.name, error)
        except Exception as error:
            self._note(str(error) or type(error).__name__)
        else:
            self._discovery_in = _PROBES_PER_DISCOVERY
            self._note("")
            await self._ask_concurrency()
            if self.on_models is not None:
                self.on_models(served)
            self.fleet.set_models(self.name, {model.name: model.capabilities for model in served})

    async def _ask_concurrency(self) -> None:
        if self.on_concurrency is None:
            return
        try:
            limit = await run_within(self.checks.timeout, self.driver.figures.concurrency(self.engine))
        except Exception as error:
            _log.debug("Backend %s does not report its concurrency: %s", self.name, error or type(error).__name__)
        else:
            self.on_concurrency(limit)

    def _note(self, problem: str) -> None:
        """Report a problem, and log it once, not at every probe."""
        if problem:
            self.fleet.list_failed(self.name, problem)
        if problem and problem != self._discovery_problem:
            _log.warning("The models of backend %s could not be listed: %s", self.name, problem)
        self._discovery_problem = problem

    def _pause(self, healthy: bool, health: Health) -> float:
        certain = health is (Health.HEALTHY if healthy else Health.UNHEALTHY)
        pause = self.checks.interval * (1 if certain else _IN_DOUBT)
        return max(_SHORTEST_PAUSE_S, pause * (0.75 + 0.5 * self.random()))
