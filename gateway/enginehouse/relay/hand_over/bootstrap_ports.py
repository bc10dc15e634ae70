"""The ports at which engines hand over what they have read."""

from __future__ import annotations

from enginehouse.interfaces.drivers import Driver, EngineClient
from enginehouse.relay.upstream.upstream import Upstream


class BootstrapPorts:
    """What the engines have said, each until it is started again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[object, int | None]] = {}

    async def of(self, upstream: Upstream, driver: Driver, engine: EngineClient) -> int | None:
        """The port of the engine behind ``upstream``. Raises as ``Driver.bootstrap_port`` does."""
        connections, port = self._known.get(upstream.name, (None, None))
        if connections is not upstream.pool:
            pool, port = upstream.pool, await driver.bootstrap_port(engine)
            self._known[upstream.name] = (pool, port)
        return port

    def remove(self, backend: str) -> None:
        """Ask again before the next request."""
        self._known.pop(backend, None)
