"""The question to an engine: can it take requests now?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from enginehouse.domain.errors import EnginehouseError
from enginehouse.engines.bounded import bounded
from enginehouse.interfaces.drivers import Driver, EngineClient, EngineResponse

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0
_PAUSE_GROWTH = 1.5
_TIMEOUT_S = 5.0


async def until_healthy(driver: Driver, engine: EngineClient, tell: Callable[[str], None]) -> None:
    """Ask soon, then less and less often, until the answer is yes; ``tell`` hears why it is not."""
    pause = _FIRST_PAUSE_S
    while True:
        await asyncio.sleep(pause)
        why = await why_unhealthy(driver, engine, _TIMEOUT_S)
        if why is None:
            return
        tell(why)
        pause = min(pause * _PAUSE_GROWTH, _LONGEST_PAUSE_S)


async def why_unhealthy(driver: Driver, engine: EngineClient, timeout: float) -> str | None:
    """``None`` if the engine can take requests now, else why it cannot, for people.

    Answers after ``timeout`` seconds at the latest, whatever the driver does, and raises nothing of the driver's.
    """
    client = _Listening(engine)
    try:
        if await bounded(driver.healthy(client), timeout):
            return None
    except TimeoutError:
        return f"no answer to its health check within {timeout:g} s"
    except EnginehouseError as error:
        return str(error)
    except Exception as error:
        _log.exception("The health check of %s failed", type(driver).__name__)
        return f"its health check failed: {error!r}"
    return client.last or "its driver says that it is not healthy"


class _Listening:
    """Passes requests on and remembers how the last was answered: a driver's "no" does not say why."""

    def __init__(self, engine: EngineClient) -> None:
        self._engine = engine
        self.last = ""

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        response = await self._engine.request(method, path, body)
        self.last = f"{method} {path} answered {response.status}"
        return response
