"""Services: what runs beside requests, such as discovery, scaling and rescheduling."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import msgspec

from enginehouse.aio.clock import Clock
from enginehouse.domain.backend_status import BackendStatus
from enginehouse.domain.instance import InstanceReport, RequestView
from enginehouse.domain.metric_info import MetricInfo
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate, Role, Route
from enginehouse.domain.request import Headers
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.ticket import Phase
from enginehouse.domain.usage import UsageRow
from enginehouse.interfaces.cache_keepers import CacheKeeper, LaunchedBackend
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.model_servers import LoadingBackend, ModelServer

if TYPE_CHECKING:  # the command line starts without it
    from starlette.routing import BaseRoute

Measured = Mapping[MetricInfo, Iterable[tuple[Sequence[str], float]]]
"""For each metric, the values of its labels with the value of their series."""


class FoundBackend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A backend, as a discoverer reports it. Fields that ``[backends.NAME]`` has too mean the same here.

    That table alone can have clients' keys and callers passed on.

    - ``models``: their names, or a table for each name with what this backend's copy can do; by default, what the
      engine lists.
    - ``host``: a host of the configuration, or a new one. By default ``node``, if there is one.
    - ``node`` and ``unit``: the failure domains of a new host.
    - ``api_key``: the engine's key itself. ``"env:NAME"`` is no reference here, since a list may come from elsewhere.
    - ``draining``: it will go soon: it gets no new requests, and its streams move away.
    - ``labels``: facts for people; ``/api/status`` shows them.
    """

    url: str
    driver: str = "openai"
    role: Role = Role.NEUTRAL
    models: Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None
    priority: int = 0
    weight: float = 1.0
    zone: str = ""
    tier: int = 0
    concurrency: int = 0
    kv_events: Mapping[str, Any] | None = None
    timeouts: Mapping[str, Any] | None = None
    host: str = ""
    node: str = ""
    unit: str = ""
    api_key: str = ""
    verify_tls: bool = True
    draining: bool = False
    labels: Mapping[str, str] = {}


class Submitted(msgspec.Struct, frozen=True):
    """The whole answer to a request of a service."""

    status: int
    body: bytes


class GatewayCaller(msgspec.Struct, frozen=True):
    """Who sends a request, as its credential shows. A service may keep this, and send requests for them later.

    - ``name``: in records and usage. ``models``: that the credential permits. ``admin``: whether it is an operator's.
    - ``through``: the name of the key of the gateway that sends for them; empty for none.
    """

    name: str
    models: tuple[str, ...] = ("*",)
    admin: bool = False
    through: str = ""


class GatewayRequest(Protocol):
    """A live request."""

    @property
    def id(self) -> str:
        """The value of ``x-request-id``. Clients choose it, so two live requests may have the same."""

    @property
    def caller(self) -> str | None:
        """The name of its key."""

    @property
    def model(self) -> str | None:
        """The model that serves it or that it waits for; ``None`` until that is decided."""

    @property
    def backend(self) -> str | None:
        """The backend that serves it; ``None`` if none does yet."""

    @property
    def phase(self) -> Phase:
        """How far it is."""

    @property
    def output_tokens(self) -> int | None:
        """The tokens of its answer so far; ``None`` if they are not known."""

    @property
    def pieces(self) -> int | None:
        """How many pieces of its answer have come. ``None`` while no engine has it, or its client reads too slowly."""

    @property
    def stream(self) -> bool:
        """Whether it asks for a stream."""

    @property
    def waits(self) -> bool:
        """Whether it waits in a queue, or for its model."""

    @property
    def began(self) -> float:
        """When it was whole, in seconds of ``ServiceGateway.clock``."""

    @property
    def route(self) -> Route | None:
        """The route of its current attempt: another object after a move or a retry."""

    def view(self, *, streams: bool) -> RequestView:
        """What rescheduling reads of it. ``streams``: with the facts of its stream, which are read now."""


class GatewayRequests(Protocol):
    """The live requests, oldest first. An operator's rights: a service sees the requests of all callers."""

    def __iter__(self) -> Iterator[GatewayRequest]: ...

    def ended(self) -> Iterator[RequestRecord]:
        """The last 1,000 requests that have ended, the newest first."""

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
        """Send a request and wait for the whole answer. Cancelling the call ends the request.

        - ``headers``: by default, those of JSON.
        - ``caller``: for whom. Their rights and limits apply, and what is used counts as theirs. ``None``: it is the
          service's own request, without a key and its limits.
        - ``priority``: in queues, in place of the caller's; higher first.
        - ``aside``: it leaves an engine's prefix cache to other requests, as far as ``KeepsCache.aside`` can do that.

        Raises ``Forbidden`` for a caller whose key is gone, and a ``RequestError`` for an answer that is not whole.
        """

    async def move(self, request: str, destination: str, engine_request: str = "") -> None:
        """Continue a live stream at the backend ``destination``, where engines may have moved it as ``engine_request``.

        Raises ``NotFound`` for an unknown request or backend, and ``CannotContinue`` if the stream stays where it is.
        """

    def cancel(self, request: str) -> None:
        """End the live requests of that id. Raises ``NotFound`` if there is none."""


class EngineFigures(Protocol):
    """What engines report of their load, asked for in the background."""

    @property
    def reports(self) -> Mapping[str, InstanceReport]:
        """The last report of each backend that runs and reports figures."""

    def every(self, seconds: float) -> None:
        """Ask so often; once a second by default."""

    async def ask(self) -> None:
        """Ask all engines now, and wait for their answers, at most 5 seconds."""

    def publish(self, view: Any) -> None:
        """Hand a view of all engines to the strategies that route by one: to ``Strategy.on_view``.

        Those of workers get a copy, so it must be one that ``pickle`` makes.
        """


class GatewayBackends(Protocol):
    """The backends, in the order of the configuration."""

    def __iter__(self) -> Iterator[BackendStatus]: ...

    def join(self, found: Mapping[str, FoundBackend]) -> Mapping[str, str]:
        """Serve with these backends too, or with what has changed of them. Returns the refused ones and why.

        A configured backend of that name wins. Nothing changes if it raises an ``EnginehouseError``.
        """

    @property
    def refused(self) -> Mapping[str, str]:
        """The joined backends that the configuration in force cannot have, and why. A reload may change them."""

    def leave(self, names: Iterable[str]) -> None:
        """Serve with these joined backends no longer. What they still serve is cut off: drain them before."""

    def drain(self, name: str) -> None:
        """Send the backend no new requests, and move its streams away."""

    def undrain(self, name: str) -> None:
        """Send it requests again."""

    async def serves(self, name: str, model: str, within: float) -> bool | None:
        """Whether its engine serves a small request for ``model`` within so many seconds.

        ``None`` if its driver cannot tell, or the gateway has no connection to spare. Raises ``NotFound``.
        """

    def late_probes(self, name: str) -> int:
        """How many of its last health checks, in a row, had no answer in time."""

    async def processor_seconds(self, name: str) -> float | None:
        """The processor time that its engine has taken so far.

        ``None`` for an engine that the gateway has not launched, and where the launcher cannot tell.
        """

    async def give_up(self, name: str, why: str) -> None:
        """Treat its engine as one that hangs; ``why``: for people.

        Its requests go to other engines if there are any, and streams continue there. An engine that the gateway has
        launched is killed, and started again by the next request. Any other is unhealthy until it serves one.
        """

    def client(self, name: str) -> EngineClient:
        """An HTTP client of the backend's engine. Raises ``NotFound`` for an unknown backend."""


class GatewayModels(Protocol):
    """The models, by the names that clients use."""

    def replicas(self, model: str) -> Sequence[Candidate]:
        """Its replicas, as routing sees them."""

    def expected_wait(self, backends: Iterable[str], requests: int) -> float:
        """The seconds that so many requests wait in the queues of these backends, at the pace of the last minute."""

    def want(self, model: str, replicas: int) -> None:
        """Have so many replicas of a model with ``replicas = { min, max }``, and begin to load or to stop them.

        Models that the gateway does not launch only show the figure: somebody else starts their engines. Raises
        ``ModelNotFound``.
        """

    async def load(self, model: str) -> None:
        """Load it and wait until it is ready. Raises ``LoadFailed``, or ``ModelNotFound``."""

    async def unload(self, model: str) -> None:
        """Stop its engines once their requests have ended, and wait for that."""

    def load_with(self, make: Callable[[LoadingBackend], ModelServer]) -> None:
        """Have the models of backends whose drivers ``SupportsLoading`` loaded by what ``make`` returns for each.

        Their requests then wait in the queues of their hosts, whose swappers unload other models for them.
        """

    def keep_with(self, make: Callable[[LaunchedBackend], CacheKeeper]) -> None:
        """Have the prefix caches of launched engines whose drivers ``KeepsCache`` kept by what ``make`` returns.

        Models are preloaded after services have been asked to start: call it before ``start`` waits for anything.
        """


class GatewayPages(Protocol):
    """HTTP pages of services."""

    def add(self, routes: Sequence[BaseRoute], *, for_callers: bool = False) -> None:
        """Answer these Starlette routes until the service stops: for operators, or for everyone with a key.

        Without keys, either answers what operators' pages answer: no web pages of other origins.
        """


class Configured(Protocol):
    """A configuration with the plugins that it uses."""

    def table(self, name: str) -> Any:
        """The table ``[name]`` of the configuration in force, decoded."""

    def types(self, kind: str) -> Mapping[str, Any]:
        """The types of ``kind`` that enabled plugins have, with their classes, or what else makes instances."""

    def plugin(
        self,
        kind: str,
        type: str,
        key: str,
        parameters: Mapping[str, Any] | None = None,
        prepare: Callable[[Any], None] | None = None,
    ) -> tuple[PluginId, Any]:
        """A new instance of another plugin's type, which the configuration names at ``key``.

        ``parameters`` stand beside ``key``, or in a table below an entry of a list, and win over those in
        ``[plugins]``. ``prepare`` gets the instance.
        Raises ``ConfigError`` or ``PluginError``.
        """


class ServiceGateway(Configured, Protocol):
    """The gateway as a service sees it."""

    @property
    def requests(self) -> GatewayRequests: ...

    @property
    def figures(self) -> EngineFigures: ...

    @property
    def backends(self) -> GatewayBackends: ...

    @property
    def models(self) -> GatewayModels: ...

    @property
    def pages(self) -> GatewayPages: ...

    @property
    def clock(self) -> Clock:
        """The gateway's time, which may be virtual."""

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the gateway listens; ``None`` if it does not."""

    @property
    def folder(self) -> Path:
        """A folder of the service's own, for what it keeps over restarts. The service makes it, outside of the loop.

        It is known from ``start`` on.
        """

    def caller(self, headers: Headers) -> GatewayCaller | None:
        """Who sends a request with these headers; ``None`` if no keys are set. Raises ``Unauthorized``."""

    def every(self, seconds: float, call: Callable[[], Awaitable[None] | None]) -> None:
        """Call it every so many seconds. A call that takes longer delays the next; exceptions show in the status."""

    def warn(self, text: str) -> None:
        """Say of the configuration, in ``Service.prepare``, what is right but probably not meant.

        It begins with the key and ends with a remedy: ``enginehouse check``, a start and a reload show it.
        """

    def used(self, rows: Sequence[UsageRow]) -> None:
        """Add to the usage of callers. Rows have their ``hour``, ``key``, ``model`` and ``user``."""

    def notify(self, event: str, *facts: object) -> None:
        """Tell the observers of an event."""


class Service(ABC):
    """Something that runs beside requests.

    It runs if the configuration has a table ``[services.TYPE]``, which holds its parameters. One whose ``table`` names
    a table of the configuration's own runs always. Where several processes serve, it runs in one of them.
    An exception, or a call that does not return, shows in ``/api/status`` and harms nobody.
    """

    table: ClassVar[str] = ""
    metrics: ClassVar[Sequence[MetricInfo]] = ()
    """The metrics that ``measure`` may have."""

    def prepare(self, gateway: ServiceGateway) -> None:
        """Check the configuration and make what ``start`` needs; start nothing.

        Called before ``start``, by ``enginehouse check``, and with a configuration that may follow: some instances are
        never started. Of ``gateway``, only ``table``, ``types``, ``plugin``, ``clock`` and ``warn`` can be used
        before ``start``. Raise ``ConfigError`` for a configuration with which the service cannot work.
        """

    @abstractmethod
    def start(self, gateway: ServiceGateway) -> Awaitable[None] | None:
        """Begin to work. May be a coroutine: the gateway waits a moment for it before it is ready."""

    def reconfigure(self, gateway: ServiceGateway) -> None:
        """Act on another configuration, which is in force now. One with other parameters in its table starts anew."""

    def stop(self) -> Awaitable[None] | None:
        """End. What ``ServiceGateway.every`` calls has ended before. May be a coroutine of at most 5 seconds."""

    def status(self) -> Mapping[str, Any]:
        """What ``/api/status`` shows besides: its own keys, for JSON."""
        return {}

    def measure(self) -> Measured:
        """The current values of ``metrics``."""
        return {}
