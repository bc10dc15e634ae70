"""Every backend, asked again and again how it is and what it serves."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Protocol

from enginehouse.config.schema import Checks
from enginehouse.domain.capabilities import Capabilities
from enginehouse.domain.replica import Health
from enginehouse.engines.bounded import bounded
from enginehouse.engines.health_check import why_unhealthy
from enginehouse.interfaces.drivers import Driver, EngineClient

_log = logging.getLogger(__name__)

_PROBES_PER_DISCOVERY = 6
_IN_DOUBT = 0.2
"""The share of ``checks.interval`` after which a verdict in doubt is looked at again."""
_SHORTEST_PAUSE_S = 0.01


class ProbeSink(Protocol):
    """Who is told what the probes found. ``name`` is the backend's."""

    def succeeded(self, name: str) -> None:
        """The backend can take requests."""

    def failed(self, name: str, why: str) -> None:
        """The backend cannot take requests; ``why`` is for people."""

    def set_models(self, name: str, models: Mapping[str, Capabilities]) -> None:
        """What the backend serves now, with what its engine says of each model."""

    def health(self, name: str) -> Health:
        """What is thought of the backend now."""


class Prober:
    """One loop per backend: is it healthy, and now and then which models it serves.

    Needs a running event loop. ``random`` gives a figure from 0 to 1; it keeps many backends from being probed at once.
    """

    def __init__(self, sink: ProbeSink, checks: Checks, random: Callable[[], float] = random.random) -> None:
        self._sink = sink
        self._checks = checks
        self._random = random
        self._loops: dict[str, _ProbeLoop] = {}

    def add(self, name: str, driver: Driver, engine: EngineClient) -> None:
        """Probe the backend ``name`` from now on, at once for the first time; instead of what had this name before."""
        self.remove(name)
        self._loops[name] = _ProbeLoop(name, driver, engine, self._sink, self._checks, self._random)

    def judge_by(self, checks: Checks) -> None:
        """Probe what is added from now on by ``checks``."""
        self._checks = checks

    def remove(self, name: str) -> None:
        """Probe the backend no more; its sink hears nothing of it from now on."""
        if (loop := self._loops.pop(name, None)) is not None:
            loop.stop()

    async def first_round(self) -> None:
        """Wait until every backend there is now has been probed once, or was removed."""
        await asyncio.gather(*(loop.probed.wait() for loop in self._loops.values()))

    def close(self) -> None:
        """Stop probing."""
        for name in list(self._loops):
            self.remove(name)


class _ProbeLoop:
    """The probes of one backend."""

    def __init__(
        self,
        name: str,
        driver: Driver,
        engine: EngineClient,
        sink: ProbeSink,
        checks: Checks,
        random: Callable[[], float],
    ) -> None:
        self.probed = asyncio.Event()
        self._name = name
        self._driver = driver
        self._engine = engine
        self._sink = sink
        self._checks = checks
        self._random = random
        self._discovery_in = 0
        self._discovery_problem = ""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        self._task.cancel()
        self.probed.set()

    async def _run(self) -> None:
        health = Health.UNKNOWN
        while True:
            healthy = await self._probe()
            before, health = health, self._sink.health(self._name)
            if healthy:
                await self._discover(at_once=before is not health)
            self.probed.set()
            await asyncio.sleep(self._pause(healthy, health))

    async def _probe(self) -> bool:
        why = await why_unhealthy(self._driver, self._engine, self._checks.timeout)
        if why is None:
            self._sink.succeeded(self._name)
        else:
            self._sink.failed(self._name, why)
        return why is None

    async def _discover(self, at_once: bool) -> None:
        """Ask for the models when it is time to. A failure says nothing of health, and the next probe tries again."""
        self._discovery_in -= 1
        if self._discovery_in > 0 and not at_once:
            return
        try:
            served = await bounded(self._driver.models(self._engine), self._checks.timeout)
        except TimeoutError:
            self._note(f"no answer within {self._checks.timeout:g} s")
        except Exception as error:
            self._note(str(error) or repr(error))
        else:
            self._discovery_in = _PROBES_PER_DISCOVERY
            self._note("")
            self._sink.set_models(self._name, {model.name: model.capabilities for model in served})

    def _note(self, problem: str) -> None:
        """Tell of a problem once, not at every probe."""
        if problem and problem != self._discovery_problem:
            _log.warning("The models of backend %s could not be listed: %s", self._name, problem)
        self._discovery_problem = problem

    def _pause(self, healthy: bool, health: Health) -> float:
        certain = health is (Health.HEALTHY if healthy else Health.UNHEALTHY)
        pause = self._checks.interval * (1 if certain else _IN_DOUBT)
        return max(_SHORTEST_PAUSE_S, pause * (0.75 + 0.5 * self._random()))
