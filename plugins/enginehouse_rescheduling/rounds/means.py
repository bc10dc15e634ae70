"""The access of migrators to the gateway."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.drivers import EngineClient
from enginehouse.errors import NotFound
from enginehouse.rescheduling import InstanceAddress, RequestView
from enginehouse.services import ServiceGateway
from enginehouse_rescheduling.rounds.dispatcher import note_moved
from enginehouse_rescheduling.rounds.placed_requests import PlacedRequests
from enginehouse_rescheduling.rounds.recent_moves import MoveLimit


class GatewayMeans:
    """The ``MigrationMeans`` of a gateway. An instance is a backend."""

    def __init__(self, gateway: ServiceGateway, live: PlacedRequests) -> None:
        self._gateway = gateway
        self._live = live
        self._limit = MoveLimit(gateway.clock.now)

    def live(self, instance: str) -> Sequence[RequestView]:
        return [self._limit.seen(request) for request in self._live.at(instance)]

    async def move(self, request: str, destination: str) -> None:
        await self.join(request, destination, "")

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        await self._gateway.requests.move(request, destination, engine_request)
        self._note(request)

    def moved_by_engine(self, request: str, destination: str) -> None:
        self._note(request)
        self._live.note_move(request, destination)

    def _note(self, request: str) -> None:
        self._limit.note(request)
        note_moved(request)

    def engine(self, instance: str) -> EngineClient:
        return self._gateway.backends.client(instance)

    def address(self, instance: str) -> InstanceAddress:
        report = self._gateway.figures.reports.get(instance)
        if report is None:
            raise NotFound(f"There is no instance '{instance}' that reports figures")
        metadata = report.metadata
        return InstanceAddress(ip=metadata.ip, llumlet_port=metadata.llumlet_port, kvt_port=metadata.kvt_port)

    def kv_tokens(self, instance: str) -> int:
        report = self._gateway.figures.reports.get(instance)
        return report.status.num_total_gpu_tokens if report is not None else 0
