"""The access of migrators to the gateway."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enginehouse.domain.errors import NotFound
from enginehouse.domain.instance import InstanceAddress, RequestView
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.probing.status_puller import Reports
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.rescheduling.dispatcher import note_moved
from enginehouse.rescheduling.live_figures import PlacedRequests
from enginehouse.rescheduling.recent_moves import MoveLimit

_TIMEOUT_S = 30.0


class GatewayMeans:
    """The ``MigrationMeans`` of a gateway. An instance is a backend."""

    def __init__(
        self, context: Callable[[], HostContext], relay: Relay, live: PlacedRequests, reports: Reports
    ) -> None:
        self._context = context
        self._relay = relay
        self._live = live
        self._reports = reports
        self._limit = MoveLimit(relay.context.clock.now)

    def live(self, instance: str) -> Sequence[RequestView]:
        return [self._limit.seen(request) for request in self._live.at(instance)]

    async def move(self, request: str, destination: str) -> None:
        await self.join(request, destination, "")

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        await self._relay.move(request, destination, engine_request, "rescheduling")
        self._note(request)

    def moved_by_engine(self, request: str, destination: str) -> None:
        self._note(request)
        self._live.note_move(request, destination)

    def _note(self, request: str) -> None:
        self._limit.note(request)
        note_moved(request)

    def engine(self, instance: str) -> EngineClient:
        upstreams = self._context().upstreams
        if instance not in upstreams:
            raise NotFound(f"There is no instance '{instance}'")
        return Client(upstreams[instance], _TIMEOUT_S)

    def address(self, instance: str) -> InstanceAddress:
        report = self._reports.get(instance)
        if report is None:
            raise NotFound(f"There is no instance '{instance}' that reports figures")
        metadata = report.metadata
        return InstanceAddress(ip=metadata.ip, llumlet_port=metadata.llumlet_port, kvt_port=metadata.kvt_port)

    def kv_tokens(self, instance: str) -> int:
        report = self._reports.get(instance)
        return report.status.num_total_gpu_tokens if report is not None else 0
