"""Asks an engine whether it can take requests now."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from enginehouse.aio.timeouts import run_within, wait_within
from enginehouse.config.model_settings import ANY_ANSWER
from enginehouse.domain.errors import EnginehouseError, Overloaded, UpstreamTimeout
from enginehouse.interfaces.drivers import Driver, EngineClient, EngineResponse

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.004, 0.1
_PAUSE_GROWTH = 1.3
_REST = 1 / 8
"""The part of a pause that no line ends: an engine that prints all the time is asked less and less too."""
_TIMEOUT_S = 5.0


class Late(str):
    """The reason of a check that has had no answer in time."""

    __slots__ = ()


class HealthCheck:
    """Asks an engine through its driver or, with a ``path``, on that page.

    The engine is healthy if the page answers 200. With the path ``none``, any answer counts.
    """

    def __init__(self, driver: Driver, path: str = "") -> None:
        self._driver = driver
        self._path = path

    async def wait_until_healthy(
        self, engine: EngineClient, printed: asyncio.Event, on_problem: Callable[[str], None]
    ) -> None:
        """Ask until the engine is healthy: at growing intervals, and soon after it has ``printed`` something.

        ``on_problem`` gets each problem.
        """
        pause = _FIRST_PAUSE_S
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

    async def problem(self, engine: EngineClient, timeout: float) -> str | None:
        """The reason, for people, why the engine cannot take requests now; ``None`` if it can.

        It is ``Late`` if there was no answer. Takes at most ``timeout`` seconds, even if the driver resists its
        cancellation. Raises nothing that a driver raises, except ``Overloaded``: then the gateway could not ask.
        """
        client = _LastAnswer(engine)
        try:
            if await run_within(timeout, self._is_healthy(client)):
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
        return client.last or "its driver says that it is not healthy"

    async def _is_healthy(self, engine: EngineClient) -> bool:
        if not self._path:
            return await self._driver.healthy(engine)
        if self._path == ANY_ANSWER:
            await engine.request("GET", "/")
            return True
        return (await engine.request("GET", self._path)).status == 200


class _LastAnswer:
    """Forwards requests and keeps the last answer in words, because a driver's ``False`` has no reason with it."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self.last = ""

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        response = await self._engine.request(method, path, body)
        self.last = f"{method} {path} answered {response.status}"
        return response
