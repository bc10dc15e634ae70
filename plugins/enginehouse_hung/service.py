"""Finds engines that hang, and has the gateway give them up."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator

from enginehouse import EnginehouseError, Service
from enginehouse.runtime import BackgroundTasks
from enginehouse.services import GatewayRequest, Measured, MetricInfo, ServiceGateway
from enginehouse_hung.frozen import FrozenEngines
from enginehouse_hung.silences import SeenRequest, Silences

_log = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0

HUNG = MetricInfo("counter", "enginehouse_hung_engines", "Engines that were given up as hung.", ("backend",))


class Hung(Service):
    """Gives up engines that pass their health check while none of their requests gets anything, and frozen ones.

    Of the former, one is asked for one token before. An engine whose driver cannot ask for one is left alone.
    """

    table = "checks"
    metrics = (HUNG,)

    def __init__(self) -> None:
        self._silences: dict[str, Silences] = {}
        self._asked: set[str] = set()
        self._given_up: Counter[str] = Counter()
        self._tasks = BackgroundTasks()
        self._gateway: ServiceGateway

    def prepare(self, gateway: ServiceGateway) -> None:
        self._gateway = gateway

    def start(self, gateway: ServiceGateway) -> None:
        gateway.every(_LOOK_EVERY_S, self._look)
        gateway.every(_LOOK_EVERY_S, FrozenEngines(gateway, self._give_up).look)

    def stop(self) -> None:
        self._tasks.cancel()

    def measure(self) -> Measured:
        return {HUNG: [((each.name,), self._given_up[each.name]) for each in self._gateway.backends]}

    def _look(self) -> None:
        at_least: float = self._gateway.table("checks").hung
        if not at_least:
            self._silences.clear()
            return
        by_backend: dict[str, list[GatewayRequest]] = {}
        for request in self._gateway.requests:
            if request.pieces is not None and request.backend is not None:
                by_backend.setdefault(request.backend, []).append(request)
        if not by_backend and not self._silences:
            return
        now, known = self._gateway.clock.now(), self._silences
        names = {each.name for each in self._gateway.backends}
        self._silences = {name: known.get(name) or Silences() for name in {*known, *by_backend} if name in names}
        for name, silences in self._silences.items():
            requests = by_backend.get(name, [])
            silences.look(now, _seen(requests))
            silent = silences.too_long(now, at_least)
            if silent is not None and name not in self._asked:
                self._asked.add(name)
                self._tasks.start(self._ask(name, silences, requests[0], at_least))

    async def _ask(self, backend: str, silences: Silences, request: GatewayRequest, limit: float) -> None:
        """Ask the engine of ``backend`` for one token, and give it up if it gives none either."""
        try:
            serves = await self._gateway.backends.serves(backend, request.model or "", limit)
            now = self._gateway.clock.now()
            silent = silences.too_long(now, limit)
            if serves is False and silent is not None and self._silences.get(backend) is silences:
                why = (
                    f"It hangs: for {silent:.0f} s none of its requests got anything, and it did not serve a small one"
                )
                await self._give_up(backend, why)
            silences.forgive(now)
        except EnginehouseError as error:  # it is gone
            _log.debug("Backend '%s' could not be asked: %s", backend, error)
        finally:
            self._asked.discard(backend)

    async def _give_up(self, backend: str, why: str) -> None:
        _log.warning("Backend '%s' is given up. %s", backend, why)
        self._given_up[backend] += 1
        await self._gateway.backends.give_up(backend, why)


def _seen(requests: list[GatewayRequest]) -> Iterator[SeenRequest]:
    for each in requests:
        view = each.view(streams=False)
        yield SeenRequest((each.id, each.began), each.pieces or 0, each.stream, view.prompt_tokens)
