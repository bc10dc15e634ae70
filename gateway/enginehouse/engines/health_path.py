"""A model whose engine tells on a page of its own whether it is ready."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from enginehouse.config.managed import ANY_ANSWER
from enginehouse.interfaces.drivers import Driver, EngineClient, LaunchSpec, ServedModel


def with_health_path(driver: Driver, path: str) -> Driver:
    """``driver``, but healthy is an engine that answers 200 at ``path``, or anything at all if that is ``none``.

    The same object without a ``path``.
    """
    return _WithHealthPath(driver, path) if path else driver


class _WithHealthPath(Driver):
    def __init__(self, driver: Driver, path: str) -> None:
        self._driver = driver
        self._path = path

    def command(self, spec: LaunchSpec) -> Sequence[str] | None:
        return self._driver.command(spec)

    def environment(self, spec: LaunchSpec) -> Mapping[str, str]:
        return self._driver.environment(spec)

    async def healthy(self, engine: EngineClient) -> bool:
        if self._path == ANY_ANSWER:
            await engine.request("GET", "/")
            return True
        return (await engine.request("GET", self._path)).status == 200

    async def models(self, engine: EngineClient) -> Sequence[ServedModel]:
        return await self._driver.models(engine)

    async def sleep(self, engine: EngineClient) -> bool:
        return await self._driver.sleep(engine)

    async def wake(self, engine: EngineClient) -> bool:
        return await self._driver.wake(engine)
