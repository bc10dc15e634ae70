"""A whole gateway, or one with workers, in the test's event loop."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter
from typing import Any, Literal, Protocol, cast

import msgspec

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app import Gateway
from enginehouse.app.build_relay import backend_parts
from enginehouse.app.plugin_instances import ConfiguredPlugins
from enginehouse.config.schema import Config
from enginehouse.http.admission import INFERENCE_PATHS
from enginehouse.http.server import HttpServer
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.relay import Relay
from enginehouse.relay.relayed_request import RelayedRequest
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse_callers import MemoryLimits
from enginehouse_callers.accounts import CallerLimits
from enginehouse_callers.keyring import Keyring
from enginehouse_callers.prices import Prices
from tests.support.http_server import connect, http_server
from tests.support.keys import callers_of
from tests.support.own_address import OWN_ADDRESS
from tests.support.raw_client import RawClient, RawResponse
from tests.support.scripted_engine import ScriptedEngine
from tests.support.waiting import until
from tests.support.workers_in_loop import WorkersInLoop

MODEL = "m"
ServedBy = Literal["gateway", "workers"]
"""What serves: one process, or two workers."""


class ServedGateway:
    """A gateway that listens on ``port``, with the engines given as its healthy backends ``a``, ``b``, ``c`` ..."""

    until = staticmethod(until)

    def __init__(
        self,
        gateway: Gateway,
        port: int,
        connections: set[Any],
        tasks: set[asyncio.Task[None]],
        servers: Iterator[HttpServer],
        workers: WorkersInLoop | None = None,
    ) -> None:
        self.gateway = gateway
        self._workers = workers
        self._connections = connections
        self._tasks = tasks
        self._servers = servers
        self.relay = gateway.relay
        self.fleet = gateway.fleet
        self.port = port
        self.clients: list[RawClient] = []
        self._adopting = BackgroundTasks()

    async def client(self) -> RawClient:
        client = RawClient(*await asyncio.open_connection(OWN_ADDRESS, self.port))
        self.clients.append(client)
        return client

    async def ask(self, data: bytes | None = None) -> RawResponse:
        """The answer to ``data``, or to a plain request, on a connection of its own."""
        return await (await self.client()).ask(self.post() if data is None else data)

    @staticmethod
    def post(
        body: bytes | Mapping[str, object] | None = None,
        *lines: bytes,
        path: str = "/v1/chat/completions",
        **more: object,
    ) -> bytes:
        """A request for ``MODEL``; ``more`` are further fields of its body."""
        raw = body if isinstance(body, bytes) else msgspec.json.encode({"model": MODEL, **(body or {}), **more})
        head = [b"POST %s HTTP/1.1" % path.encode(), *_host(lines), b"content-length: %d" % len(raw), *lines]
        return b"\r\n".join((*head, b"", raw))

    @staticmethod
    def get(path: str, *lines: bytes, method: str = "GET") -> bytes:
        head = [f"{method} {path} HTTP/1.1".encode(), *_host(lines), *lines]
        return b"\r\n".join((*head, b"", b""))

    def pending(self) -> dict[str, int]:
        for backend in self.fleet.backends():
            self.fleet.load(backend.name).refresh()
        return {backend.name: backend.pending for backend in self.fleet.backends()}

    def attempts(self) -> list[Attempt]:
        """The current attempts of live exchanges."""
        dispatches = [exchange._dispatch for exchange in self.relay.live if isinstance(exchange, RelayedRequest)]
        return [dispatch.attempt for dispatch in dispatches if dispatch.attempt is not None]

    @property
    def relays(self) -> list[Relay]:
        """The relay that serves requests, or that of each worker."""
        return [self.relay] if self._workers is None else [each.relay for each in self._workers.workers.values()]

    def refuse_new(self) -> None:
        """What a gateway that stops does first; operators' pages still answer."""
        for relay in {self.relay, *self.relays}:
            relay.refuse_new()

    def pass_time(self, seconds: float) -> None:
        """Have every live request believe that ``seconds`` have passed."""
        for exchange in list(self.relay.live):
            exchange.check_time(perf_counter() + seconds)

    def wait_for(self, seconds: float) -> None:
        """Have every client that waits believe that it has waited for so long."""
        self.relay.requests.waiting.tell(self.relay.live, perf_counter() + seconds)

    async def congested(self, engine: ScriptedEngine) -> None:
        """Until everything stands still because a client reads the answers of ``engine`` too slowly."""
        turns = itertools.count()
        before: list[int] = []

        def settled() -> bool:
            nonlocal turns, before
            sent = [call.sent for call in engine.calls]
            if sent != before or not any(each.write_paused for each in self._connections):
                turns, before = itertools.count(), sent
            return next(turns) > 100

        await until(settled)

    def seconds_pass(self, seconds: int) -> None:
        """What the idle sweep does in so many seconds."""
        for connection in self._connections:
            for _ in range(seconds):
                connection.check_silence(asyncio.get_running_loop().time())

    def seconds_later(self, *seconds: float) -> None:
        """What the idle sweep does so many seconds from now."""
        now = asyncio.get_running_loop().time()
        for later in seconds:
            for connection in list(self._connections):
                connection.check_silence(now + later)

    @property
    def held(self) -> int:
        """The bytes of bodies that the gateway holds in memory."""
        return self.gateway.admission.body_memory.held

    @property
    def connected(self) -> bool:
        """Whether a client is connected."""
        return bool(self._connections)

    def cancel_tasks(self) -> None:
        """What a stopping server does to requests that take too long."""
        for task in self._tasks:
            task.cancel()

    def shut_down(self) -> None:
        """What a stopping server tells its connections."""
        for connection in list(self._connections):
            connection.shutdown()

    @property
    def receiving(self) -> bool:
        """Whether a request has come in part."""
        return any(not each.between for each in self._connections)

    def leave_to(self, successor: ServedGateway) -> None:
        """Give the connections to ``successor``, each as soon as that is possible."""
        for connection in list(self._connections):
            connection.leave(successor.adopt)

    def pass_streams_to(self, successor: ServedGateway) -> None:
        """Give the connections to ``successor`` that have a stream which it can continue."""
        for connection in list(self._connections):
            connection.pass_stream(successor.adopt)

    def adopt(self, descriptor: int, received: bytes, stream: bytes = b"") -> None:
        """Serve a connection of another gateway."""
        passed = socket.socket(fileno=os.dup(descriptor))
        self._adopting.start(self._serve(passed, received, stream))

    async def _serve(self, passed: socket.socket, received: bytes, stream: bytes) -> None:
        def resumed() -> asyncio.Protocol:
            return connect(next(self._servers), resumes=stream, received=received)

        await asyncio.get_running_loop().connect_accepted_socket(resumed, passed)

    async def disconnected(self) -> None:
        """Until no client is connected any more."""
        await until(lambda: not self._connections and not self._tasks)

    async def quiet(self) -> None:
        """Until nothing is live; then nothing may be pending either."""
        workers = self._workers
        await until(lambda: not any(relay.live for relay in self.relays))
        if workers is not None:
            assert not workers.held
            await workers.stop()
        assert set(self.pending().values()) <= {0}


def _host(lines: Sequence[bytes]) -> list[bytes]:
    return [] if any(line.startswith(b"host:") for line in lines) else [b"host: localhost"]


def limits_at(clock: Callable[[], float], config: Config | None = None) -> CallerLimits:
    """Limits that read ``clock``, with the prices of ``config``."""
    store = MemoryLimits()
    store.prepare("", clock, clock)
    return CallerLimits(store, Prices(config.prices if config is not None else {}))


class HasUrl(Protocol):
    """An engine's address."""

    @property
    def url(self) -> str: ...


class OpenGateway(Protocol):
    """Opens gateways with the given engines as their healthy backends.

    ``backend``: further settings of each backend. ``sections``: those of a configuration file.
    """

    async def __call__(
        self,
        *engines: HasUrl,
        clock: Callable[[], float] | None = None,
        backend: Mapping[str, object] | None = None,
        backends: Mapping[str, object] | None = None,
        **sections: object,
    ) -> ServedGateway: ...


def configure(
    engines: Sequence[HasUrl],
    backend: Mapping[str, object] | None,
    backends: Mapping[str, object] | None,
    sections: Mapping[str, object],
) -> Config:
    """The configuration of a gateway whose backends ``a``, ``b`` ... are ``engines``, which take every path."""
    named = {
        name: {"url": each.url, "models": [MODEL], **(backend or {})}
        for name, each in zip("abcdefgh", engines, strict=False)
    }
    models = cast("Mapping[str, Mapping[str, object]]", sections.get("models", {}))
    speaking = {**models, MODEL: {"endpoints": [*INFERENCE_PATHS], **models.get(MODEL, {})}}
    return msgspec.convert({"backends": {**named, **(backends or {})}, **sections, "models": speaking}, Config)


def prepare(config: Config, registry: Registry, clock: Callable[[], float] | None) -> Gateway:
    """A gateway that believes all its backends to be healthy. ``clock``: that of its keys' limits."""
    gateway = Gateway(config, registry)
    for name, settings in config.backends.items():
        gateway.relay.context.upstreams[name] = Upstream(name, settings, config.timeouts, Outside())
        gateway.fleet.succeeded(name)
    backend_parts(config, gateway.path.drivers).limit(gateway.relay.context.upstreams)
    configured = ConfiguredPlugins(lambda: config, registry)
    gateway.relay.requests.waiting.wanted = gateway.observers.wanted("streams_wait", configured)
    if clock is not None:
        callers_of(gateway).keyring = Keyring(config.auth.keys, limits_at(clock, config))
    return gateway


async def serve(gateway: Gateway, by: ServedBy) -> tuple[ServedGateway, asyncio.Server]:
    """Have ``gateway``, or its workers in turn, listen on a port of its own."""
    connections: set[Any] = set()
    tasks: set[asyncio.Task[None]] = set()
    share = None
    if by == "workers":
        share = WorkersInLoop(gateway, 2)
        await share.start()
    serving = [gateway] if share is None else [*share.workers.values()]
    servers = itertools.cycle([http_server(each, connections, tasks) for each in serving])
    server = await asyncio.get_running_loop().create_server(lambda: connect(next(servers)), OWN_ADDRESS, 0)
    port = server.sockets[0].getsockname()[1]
    return ServedGateway(gateway, port, connections, tasks, servers, share), server
