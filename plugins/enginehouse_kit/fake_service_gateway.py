"""A gateway for the tests of services."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from enginehouse import Candidate, Headers, RequestRecord, Route
from enginehouse.backends import (
    BackendStatus,
    CacheKeeper,
    FoundBackend,
    LaunchedBackend,
    LoadingBackend,
    ModelServer,
)
from enginehouse.callers import UsageRow
from enginehouse.drivers import EngineClient
from enginehouse.errors import NotFound
from enginehouse.rescheduling import InstanceReport, RequestView
from enginehouse.runtime import BackgroundTasks, Clock, PluginId
from enginehouse.services import GatewayCaller, GatewayRequest, Submitted
from enginehouse.tickets import Phase
from enginehouse_kit.expect import expect
from enginehouse_kit.plugin_manager import create, default_table, factories
from enginehouse_kit.rescheduling import ClusterView

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


class FakeGatewayRequest(msgspec.Struct, kw_only=True):
    """A ``GatewayRequest`` with these facts. ``seen``: its view; ``read``: what its stream changes of it."""

    id: str = "r"
    caller: str | None = None
    model: str | None = "m"
    backend: str | None = None
    phase: Phase = Phase.SERVING
    output_tokens: int | None = None
    pieces: int | None = None
    stream: bool = True
    waits: bool = False
    began: float = 0.0
    route: Route | None = None
    seen: RequestView = RequestView(id="r")
    read: dict[str, Any] = {}

    def view(self, *, streams: bool) -> RequestView:
        return msgspec.structs.replace(self.seen, **self.read) if streams else self.seen


class FakeServiceGateway:
    """A ``ServiceGateway`` whose parts a test sets, and which notes what a service does.

    - ``tables``: of the configuration, by name; its defaults where there is none.
    - ``live``: the requests. ``records``: of ended ones. ``moves``: what was moved where. ``cancelled``: ids.
      ``submitted``: paths and bodies, which get ``answer``. ``asking``: who asks for pages. ``senders``: for whom what
      was submitted.
    - ``reports`` and ``statuses``: of engines and backends. ``joined``, ``drained``: the backends that are so now.
      ``refused``: why some cannot join. ``serving``: whether engines serve. ``late``: their late probes.
      ``processor_s``: their processor times. ``given_up``: why some were. ``clients``: of engines, by backend.
    - ``candidates``: the replicas of models. ``wanted``, ``loaded``: what was wanted of models. ``loads_with``,
      ``keeps_with``: what makes their servers, and what keeps the caches of launched engines.
    - ``routes``: the added pages. ``calls``: what is called regularly. ``notes``: the events that observers got.
    - ``usage``: what was added to it. ``warnings``: of the configuration.
    """

    def __init__(self, folder: Path = Path("unused"), clock: Clock | None = None) -> None:
        self.clock = clock or Clock()
        self.folder = folder
        self.address: tuple[str, int] | None = None
        self.tables: dict[str, Any] = {}
        self.live: list[GatewayRequest] = []
        self.records: list[RequestRecord] = []
        self.moves: list[tuple[str, str, str]] = []
        self.cancelled: list[str] = []
        self.submitted: list[tuple[str, bytes]] = []
        self.answer = Submitted(200, b"{}")
        self.asking: GatewayCaller | None = None
        self.senders: list[GatewayCaller | None] = []
        self.reports: dict[str, InstanceReport] = {}
        self.asked = 0
        self.asked_every = 1.0
        self.published: list[ClusterView] = []
        self.statuses: list[BackendStatus] = []
        self.joined: dict[str, FoundBackend] = {}
        self.refused: dict[str, str] = {}
        self.drained: set[str] = set()
        self.serving: dict[str, bool] = {}
        self.late: dict[str, int] = {}
        self.processor_s: dict[str, float] = {}
        self.given_up: dict[str, str] = {}
        self.clients: dict[str, EngineClient] = {}
        self.candidates: dict[str, Sequence[Candidate]] = {}
        self.wanted: dict[str, int] = {}
        self.loaded: set[str] = set()
        self.loads_with: Callable[[LoadingBackend], ModelServer] | None = None
        self.keeps_with: Callable[[LaunchedBackend], CacheKeeper] | None = None
        self.routes: list[BaseRoute] = []
        self.calls: list[tuple[float, Callable[[], Awaitable[None] | None]]] = []
        self.usage: list[UsageRow] = []
        self.warnings: list[str] = []
        self.notes: list[tuple[str, tuple[object, ...]]] = []
        self.requests = _Requests(self)
        self.figures = _Figures(self)
        self.backends = _Backends(self)
        self.models = _Models(self)
        self.pages = _Pages(self)
        self._tasks = BackgroundTasks()

    def every(self, seconds: float, call: Callable[[], Awaitable[None] | None]) -> None:
        is_interval = isinstance(seconds, (int, float)) and seconds > 0
        expect(is_interval, f"every takes a number of seconds, more than 0, got {seconds!r}")
        self.calls.append((seconds, call))
        self._tasks.start(self._repeat(seconds, call))

    def caller(self, headers: Headers) -> GatewayCaller | None:
        return self.asking

    def table(self, name: str) -> Any:
        return self.tables[name] if name in self.tables else default_table(name)

    def types(self, kind: str) -> Mapping[str, Any]:
        return factories(kind)

    def plugin(
        self,
        kind: str,
        type: str,
        key: str,
        parameters: Mapping[str, Any] | None = None,
        prepare: Callable[[Any], None] | None = None,
    ) -> tuple[PluginId, Any]:
        made = create(kind, type, parameters)
        if prepare is not None:
            prepare(made)
        return PluginId(kind, type), made

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def used(self, rows: Sequence[UsageRow]) -> None:
        self.usage.extend(rows)

    def notify(self, event: str, *facts: object) -> None:
        self.notes.append((event, facts))

    def close(self) -> None:
        """Call nothing any more, as before a service stops."""
        self._tasks.cancel()

    async def _repeat(self, seconds: float, call: Callable[[], Awaitable[None] | None]) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            await asyncio.sleep(max(0.0, began + seconds - loop.time()))
            began = loop.time()
            if (made := call()) is not None:
                await made


class _Part:
    def __init__(self, fake: FakeServiceGateway) -> None:
        self._fake = fake


class _Requests(_Part):
    def __iter__(self) -> Iterator[GatewayRequest]:
        return iter(self._fake.live)

    def ended(self) -> Iterator[RequestRecord]:
        return reversed(self._fake.records)

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
        self._fake.submitted.append((path, body))
        self._fake.senders.append(caller)
        return self._fake.answer

    async def move(self, request: str, destination: str, engine_request: str = "") -> None:
        self._fake.moves.append((request, destination, engine_request))

    def cancel(self, request: str) -> None:
        if request not in [each.id for each in self._fake.live]:
            raise NotFound(f"There is no live request '{request}'")
        self._fake.cancelled.append(request)


class _Figures(_Part):
    @property
    def reports(self) -> Mapping[str, InstanceReport]:
        return self._fake.reports

    def every(self, seconds: float) -> None:
        self._fake.asked_every = seconds

    async def ask(self) -> None:
        self._fake.asked += 1

    def publish(self, view: ClusterView) -> None:
        self._fake.published.append(view)


class _Backends(_Part):
    def __iter__(self) -> Iterator[BackendStatus]:
        return iter(self._fake.statuses)

    def join(self, found: Mapping[str, FoundBackend]) -> Mapping[str, str]:
        self._fake.joined |= {name: each for name, each in found.items() if name not in self._fake.refused}
        return {name: why for name, why in self._fake.refused.items() if name in found}

    @property
    def refused(self) -> Mapping[str, str]:
        return self._fake.refused

    def leave(self, names: Iterable[str]) -> None:
        for name in names:
            self._fake.joined.pop(name, None)

    def drain(self, name: str) -> None:
        self._fake.drained.add(name)

    def undrain(self, name: str) -> None:
        self._fake.drained.discard(name)

    async def serves(self, name: str, model: str, within: float) -> bool | None:
        return self._fake.serving.get(name)

    def late_probes(self, name: str) -> int:
        return self._fake.late.get(name, 0)

    async def processor_seconds(self, name: str) -> float | None:
        return self._fake.processor_s.get(name)

    async def give_up(self, name: str, why: str) -> None:
        self._fake.given_up[name] = why

    def client(self, name: str) -> EngineClient:
        if name not in self._fake.clients:
            raise NotFound(f"There is no backend '{name}'")
        return self._fake.clients[name]


class _Models(_Part):
    def replicas(self, model: str) -> Sequence[Candidate]:
        return self._fake.candidates.get(model, ())

    def expected_wait(self, backends: Iterable[str], requests: int) -> float:
        return 0.0

    def want(self, model: str, replicas: int) -> None:
        self._fake.wanted[model] = replicas

    async def load(self, model: str) -> None:
        self._fake.loaded.add(model)

    async def unload(self, model: str) -> None:
        self._fake.loaded.discard(model)

    def load_with(self, make: Callable[[LoadingBackend], ModelServer]) -> None:
        self._fake.loads_with = make

    def keep_with(self, make: Callable[[LaunchedBackend], CacheKeeper]) -> None:
        self._fake.keeps_with = make


class _Pages(_Part):
    def add(self, routes: Sequence[BaseRoute], *, for_callers: bool = False) -> None:
        self._fake.routes += routes
