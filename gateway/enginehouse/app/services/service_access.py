"""The gateway as a service sees it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from enginehouse.aio.clock import Clock
from enginehouse.aio.timeouts import run_within
from enginehouse.app.config_change import CurrentConfig
from enginehouse.app.plugin_instances import ConfiguredPlugins
from enginehouse.app.services.service_calls import ServiceCalls
from enginehouse.app.services.submission import ServedCaller, submit
from enginehouse.config.schema import Config
from enginehouse.domain.backend_status import BackendStatus
from enginehouse.domain.errors import ModelNotFound, NotFound, Overloaded, RequestError
from enginehouse.domain.instance import RequestView
from enginehouse.domain.replica import Candidate, Health, ReplicaState, Route
from enginehouse.domain.request import Headers
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.domain.usage import UsageRow
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.cache_keepers import CacheKeeper, LaunchedBackend
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.model_servers import LoadingBackend, ModelServer
from enginehouse.interfaces.services import EngineFigures, FoundBackend, GatewayCaller, Submitted
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.live.live_request import LiveRequest, each_alone
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.flow_control import expected_wait
from enginehouse.telemetry.observers import notify

_TIMEOUT_S = 30.0
_RUNS = (ReplicaState.PLACING, ReplicaState.STARTING, ReplicaState.READY)


class GatewayInForce:
    """The gateway ``in_force`` of a service. Until that is set, only the ``config`` is known for which it is made."""

    in_force: CurrentConfig | None = None

    def __init__(self, config: Config) -> None:
        self._config = config

    @property
    def current(self) -> CurrentConfig:
        assert self.in_force is not None, "only the configuration and the clock are known before start"
        return self.in_force

    @property
    def config(self) -> Config:
        return self._config if self.in_force is None else self.in_force.path.config

    @property
    def relay(self) -> Relay:
        return self.current.path.relay


class ServiceAccess:
    """The ``ServiceGateway`` of one service."""

    def __init__(
        self,
        seen: GatewayInForce,
        registry: Registry,
        outside: Outside,
        calls: ServiceCalls,
        warn: Callable[[str], None],
    ) -> None:
        self.warn = warn
        self.requests = _RequestAccess(seen, calls.type)
        self.backends = _BackendAccess(seen)
        self.models = _ModelAccess(seen, calls)
        self.pages = _PageAccess(calls)
        self.every = calls.every
        self.clock = outside.clock
        configured = ConfiguredPlugins(lambda: seen.config, registry, outside)
        self.table, self.types, self.plugin = configured.table, configured.types, configured.plugin
        self._seen = seen
        self._type = calls.type

    @property
    def figures(self) -> EngineFigures:
        return self._seen.current.puller

    @property
    def address(self) -> tuple[str, int] | None:
        return self._seen.current.address

    @property
    def folder(self) -> Path:
        return Path(self._seen.current.path.callers.folder, "services", self._type)

    def caller(self, headers: Headers) -> GatewayCaller | None:
        caller = self._seen.current.path.admission.authentication.caller(headers)
        return None if caller is None else GatewayCaller(caller.name, caller.models, caller.admin, caller.through)

    def used(self, rows: Sequence[UsageRow]) -> None:
        self._seen.current.path.callers.accounting.used(rows)

    def notify(self, event: str, *facts: object) -> None:
        notify(self._seen.current.path.observers.callbacks(event), *facts)


class _RequestAccess:
    def __init__(self, seen: GatewayInForce, cause: str) -> None:
        self._seen = seen
        self._cause = cause

    def __iter__(self) -> Iterator[_SeenRequest]:
        waiting = self._seen.current.waiting()
        for live in sorted(self._seen.relay.live, key=lambda live: live.began):
            yield _SeenRequest(live, waiting, self._seen.relay.context.clock)

    def ended(self) -> Iterator[RequestRecord]:
        return (each.record for each in self._seen.relay.context.activity.newest_first())

    async def submit(
        self,
        path: str,
        body: bytes,
        headers: Headers | None = None,
        *,
        caller: GatewayCaller | None = None,
        priority: int | None = None,
        aside: bool = False,
    ) -> Submitted:
        admission = self._seen.current.path.admission
        admitted: AdmittedCaller | None = None
        if caller is not None:
            admitted = admission.authentication.absent(caller.name, caller.models, caller.through)
        if priority is not None or aside:
            own = admitted or AdmittedCaller(f"service/{self._cause}")
            admitted = ServedCaller(own, own.priority if priority is None else priority, aside=aside)
        return await submit(admission, path, body, headers, admitted)

    async def move(self, request: str, destination: str, engine_request: str = "") -> None:
        await self._seen.relay.move(request, destination, engine_request, self._cause)

    def cancel(self, request: str) -> None:
        found = self._seen.relay.find(request)
        if not found:
            raise NotFound(f"There is no live request '{request}'")
        for live in found:
            live.cancel()


class _SeenRequest:
    """A ``GatewayRequest``."""

    __slots__ = ("_clock", "_live", "_waiting")

    def __init__(self, live: LiveRequest, waiting: Collection[Ticket], clock: Clock) -> None:
        self._live = live
        self._waiting = waiting
        self._clock = clock

    @property
    def id(self) -> str:
        return self._live.request_id.decode()

    @property
    def caller(self) -> str | None:
        return self._live.state().caller

    @property
    def model(self) -> str | None:
        route = self._live.route
        return route.chosen.model if route is not None else self._live.model

    @property
    def backend(self) -> str | None:
        route = self._live.route
        return route.chosen.backend if route is not None else None

    @property
    def phase(self) -> Phase:
        return self._live.phase

    @property
    def output_tokens(self) -> int | None:
        return self._live.tokens().output

    @property
    def pieces(self) -> int | None:
        return self._live.pieces

    @property
    def stream(self) -> bool:
        needs = self._live.requirements
        return needs is not None and needs.stream

    @property
    def waits(self) -> bool:
        return self._live.ticket in self._waiting or self._live.position is not None  # in a worker's waiting room

    @property
    def began(self) -> float:
        return self._live.began

    @property
    def route(self) -> Route | None:
        return self._live.route

    def view(self, *, streams: bool) -> RequestView:
        live, needs = self._live, self._live.requirements
        seen = RequestView(
            id=self.id,
            model=self.model or "",
            arrived_ms=self._clock.epoch_ms() - round((self._clock.now() - live.began) * 1000),
            prompt_tokens=needs.estimated_tokens if needs is not None else 0,
        )
        if not streams:
            return seen
        tokens = live.tokens()
        return msgspec.structs.replace(
            seen,
            prompt_tokens=tokens.prompt or seen.prompt_tokens,
            output_tokens=tokens.output or 0,
            max_tokens=tokens.most,
            stays=live.why_not_movable,
        )


class _BackendAccess:
    def __init__(self, seen: GatewayInForce) -> None:
        self._seen = seen

    def __iter__(self) -> Iterator[BackendStatus]:
        config = self._seen.config
        for each in self._seen.relay.context.fleet.backends():
            host = config.host_settings(each.host)
            yield msgspec.structs.replace(each, node=each.node or host.node, unit=each.unit or host.unit)

    def join(self, found: Mapping[str, FoundBackend]) -> Mapping[str, str]:
        self._become({**self._seen.current.joined.found, **found})
        return {name: why for name, why in self.refused.items() if name in found}

    @property
    def refused(self) -> Mapping[str, str]:
        return self._seen.current.joined.in_force.refused

    def leave(self, names: Iterable[str]) -> None:
        gone = set(names)
        self._become({name: each for name, each in self._seen.current.joined.found.items() if name not in gone})

    def _become(self, found: Mapping[str, FoundBackend]) -> None:
        before, self._seen.current.joined.found = self._seen.current.joined.found, found
        try:
            self._seen.current.rejoin()
        except BaseException:
            self._seen.current.joined.found = before
            raise

    def drain(self, name: str) -> None:
        self._seen.relay.context.fleet.drain(name)
        self._seen.relay.drains.begin(name)

    def undrain(self, name: str) -> None:
        self._seen.relay.context.fleet.undrain(name)

    async def serves(self, name: str, model: str, within: float) -> bool | None:
        context = self._seen.relay.context
        there = [each.name_there for each in context.fleet.snapshot.candidates(model) if each.backend == name]
        client, driver = Client(self._upstream(name), within), context.drivers[name].driver
        try:
            return await run_within(within, driver.serves(client, there[0] if there and there[0] else model))
        except Overloaded:
            return None
        except (RequestError, TimeoutError):
            return False

    def late_probes(self, name: str) -> int:
        return self._seen.current.prober.late_probes(name)

    async def processor_seconds(self, name: str) -> float | None:
        return await self._seen.current.engines.processor_seconds(name)

    async def give_up(self, name: str, why: str) -> None:
        fleet = self._seen.relay.context.fleet
        fleet.mark_hung(name, why)
        if not await self._seen.current.engines.end_hung(name, why):
            each_alone(self._seen.relay.drains.live(name), partial(self._send_elsewhere, name, why))

    def _send_elsewhere(self, name: str, why: str, request: LiveRequest) -> None:
        """Act as if the engine had broken ``request`` off, if another backend may serve it."""
        others = self._seen.relay.context.fleet.snapshot.candidates(request.model or "")
        if any(each.backend != name and each.health is not Health.UNHEALTHY for each in others):
            request.cut_off(why)

    def client(self, name: str) -> EngineClient:
        return Client(self._upstream(name), _TIMEOUT_S)

    def _upstream(self, name: str) -> Upstream:
        upstream = self._seen.relay.context.upstreams.get(name)
        if upstream is None:
            raise NotFound(f"There is no backend '{name}'")
        return upstream


class _ModelAccess:
    def __init__(self, seen: GatewayInForce, calls: ServiceCalls) -> None:
        self._seen = seen
        self._calls = calls

    def replicas(self, model: str) -> Sequence[Candidate]:
        return self._seen.relay.context.fleet.snapshot.candidates(model)

    def expected_wait(self, backends: Iterable[str], requests: int) -> float:
        queues = self._seen.relay.context.queues
        backlogs = {queues[name].backlog: None for name in backends if name in queues}
        return expected_wait(backlogs.keys(), requests)

    def want(self, model: str, replicas: int) -> None:
        settings = self._seen.config.models.get(model)
        if settings is None and not self.replicas(model):
            raise ModelNotFound(model)
        sizes = self._seen.current.sizes
        before, sizes.wanted = sizes.wanted, {**sizes.wanted, model: replicas}
        if sizes.wanted != before:
            try:
                self._seen.current.rejoin()
            except BaseException:
                sizes.wanted = before
                raise
        running = sum(each.state in _RUNS for each in self.replicas(model) if not each.draining)
        if replicas > running and settings is not None and settings.launches:
            self._seen.current.engines.preload_some(model, replicas)
        elif not replicas:
            self._seen.current.engines.rest(model)

    async def load(self, model: str) -> None:
        await self._seen.current.engines.load(model)

    async def unload(self, model: str) -> None:
        await self._seen.current.engines.unload([model])

    def load_with(self, make: Callable[[LoadingBackend], ModelServer]) -> None:
        self._seen.current.engines.load_with(lambda backend: self._calls.ask(partial(make, backend)))

    def keep_with(self, make: Callable[[LaunchedBackend], CacheKeeper]) -> None:
        self._seen.current.engines.keep_with(lambda backend: self._calls.ask(partial(make, backend)))


class _PageAccess:
    def __init__(self, calls: ServiceCalls) -> None:
        self.add = calls.add_pages
