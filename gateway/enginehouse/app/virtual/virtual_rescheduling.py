"""The parts that the rescheduler of a virtual gateway reads and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from enginehouse.aio.clock import Clock
from enginehouse.app.build_rescheduling import Surroundings
from enginehouse.app.virtual.virtual_engines import VirtualEngines
from enginehouse.app.virtual.virtual_move import VirtualMove
from enginehouse.app.virtual.virtual_request import VirtualRequest
from enginehouse.domain.errors import CannotContinue, NotFound
from enginehouse.domain.instance import InstanceAddress, RequestView
from enginehouse.engines.host_context import HostContext
from enginehouse.engines.probing.status_puller import InstanceReport
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.rescheduling.cluster import Cluster
from enginehouse.rescheduling.live_figures import LiveFigures
from enginehouse.telemetry.counters import Counters

if TYPE_CHECKING:
    from enginehouse.app.virtual.virtual_gateway import VirtualGateway


def virtual_surroundings(gateway: VirtualGateway, context: HostContext) -> Surroundings:
    """Those of ``gateway``: engines' figures are read when a round begins, and plans are made at once."""
    clock = Clock(gateway.now, gateway.now)
    account = VirtualAccount(gateway)
    reports = VirtualReports(gateway.engines, gateway.now, lambda: [each.name for each in gateway.backends])
    means = VirtualMeans(gateway, account, reports)
    return Surroundings(
        cluster=Cluster(lambda: context, account, reports, clock),
        figures=reports,
        means=means,
        on_view=gateway.router.on_view,
        counters=Counters(),
        clock=clock,
        played=gateway.engines.migrators(means),
        in_thread=False,
    )


class VirtualReports(Mapping[str, InstanceReport]):
    """The engines' figures of now, by backend."""

    def __init__(
        self, engines: VirtualEngines, now: Callable[[], float], backends: Callable[[], Sequence[str]]
    ) -> None:
        self._engines = engines
        self._now = now
        self._backends = backends

    def __getitem__(self, backend: str) -> InstanceReport:
        report = self._engines.report(backend)
        if report is None:
            raise KeyError(backend)
        return InstanceReport(*report, asked_at=self._now())

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._backends() if self._engines.report(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def start(self, interval: float) -> None:
        """Nothing is asked in the background."""

    def stop(self) -> None:
        """Nothing was started."""

    async def pull(self) -> None:
        """Figures are read when they are used."""


class VirtualAccount:
    """The requests that engines have, by instance."""

    def __init__(self, gateway: VirtualGateway) -> None:
        self._gateway = gateway

    def at(self, instance: str) -> Sequence[RequestView]:
        """The live requests of one instance, oldest first."""
        return [each.request for each in self._by_instance().get(instance, ())]

    async def by_instance(self) -> Mapping[str, Sequence[LiveFigures]]:
        return self._by_instance()

    def _by_instance(self) -> Mapping[str, Sequence[LiveFigures]]:
        found: dict[str, list[LiveFigures]] = {}
        for request in self._gateway.live.values():
            assert request.route is not None
            found.setdefault(request.route.chosen.backend, []).append(self._figures(request))
        return found

    def _figures(self, request: VirtualRequest) -> LiveFigures:
        assert request.route is not None
        view = RequestView(
            id=request.id,
            model=request.route.chosen.model,
            arrived_ms=int(request.began * 1000),
            prompt_tokens=request.requirements.estimated_tokens,
            output_tokens=self._gateway.engines.output_tokens(request),
            max_tokens=self._gateway.engines.max_tokens(request),
        )
        return LiveFigures(view, request.began, lambda: view)


class VirtualMeans:
    """The ``MigrationMeans`` of a virtual gateway."""

    def __init__(self, gateway: VirtualGateway, account: VirtualAccount, reports: VirtualReports) -> None:
        self._gateway = gateway
        self._account = account
        self._reports = reports
        self._moving: set[str] = set()

    def live(self, instance: str) -> Sequence[RequestView]:
        return self._account.at(instance)

    async def move(self, request: str, destination: str) -> None:
        found = self._request(request)
        if request in self._moving:
            raise CannotContinue("The request is being moved already")
        move = VirtualMove(self._gateway, found, destination)
        self._moving.add(request)
        try:
            await self._gateway.engines.move(found, destination)
        except BaseException:
            move.cancel()
            raise
        finally:
            self._moving.discard(request)
        move.complete()

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        VirtualMove(self._gateway, self._request(request), destination).complete()

    def moved_by_engine(self, request: str, destination: str) -> None:
        VirtualMove(self._gateway, self._request(request), destination, queued=False).complete()

    def engine(self, instance: str) -> EngineClient:
        raise NotFound("Engines of a simulation have no pages")

    def address(self, instance: str) -> InstanceAddress:
        return InstanceAddress()

    def kv_tokens(self, instance: str) -> int:
        report = self._reports.get(instance)
        return report.status.num_total_gpu_tokens if report is not None else 0

    def _request(self, request: str) -> VirtualRequest:
        if request not in self._gateway.live:
            raise NotFound(f"There is no live request '{request}'")
        return self._gateway.live[request]
