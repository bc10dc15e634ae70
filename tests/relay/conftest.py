"""A whole gateway between scripted engines and raw clients, all in one event loop, behind either door."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import itertools
import random
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec
import pytest
from uvicorn import Config as UvicornConfig
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from enginehouse import HostedReplica, HostFacts, ReplicaState, SchedulingLimits, SwapDone
from enginehouse.api.fast_door import FastDoor, WebSocketProtocol, fast_door
from enginehouse.api.keys import Keyring
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, Plugins
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.host import Host
from enginehouse.testing import OneAtATime
from enginehouse_scheduling.fifo import Fifo

_T = TypeVar("_T")
_LIMIT = 2.0
_ON_BOTH_LOOPS = {f"test_relay_{topic}.py" for topic in ("aborts", "pressure", "progress", "streaming", "tls")}
MODEL = "m"


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """What the gateway runs on where it can, and for what depends on the loop also what it runs on elsewhere."""
    if importlib.util.find_spec("uvloop") is None:
        return {"asyncio": asyncio.new_event_loop}
    import uvloop

    if item.path.name not in _ON_BOTH_LOOPS:
        return {"uvloop": uvloop.new_event_loop}
    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


async def within(awaited: Awaitable[_T]) -> _T:
    """``awaited``, unless it takes so long that it will never come."""
    return await asyncio.wait_for(awaited, _LIMIT)


class Signal(asyncio.Event):
    """An event that is not waited for for ever."""

    async def wait(self) -> Literal[True]:
        return await within(super().wait())


async def until(holds: Callable[[], object]) -> None:
    """Let the loop run until ``holds()``."""

    async def turn() -> None:
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)

    await within(turn())


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


# --- engines

CLOSE, RESET, END = object(), object(), b"0\r\n\r\n"
Step = Any
"""Bytes to send, an event to wait for, ``CLOSE`` or ``RESET``."""


class Call:
    """One request as it reached an engine. ``closed`` is set once its connection is, ``played`` after its script."""

    def __init__(self, head: bytes, body: bytes, connection: EngineConnection) -> None:
        self.request_line, *lines = head.split(b"\r\n")
        pairs = [line.partition(b": ") for line in lines]
        self.lines = [(name, value) for name, _, value in pairs]
        self.body = body
        self.connection = connection
        self.closed = connection.closed
        self.played = asyncio.Event()
        self.sent = 0

    def header(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.lines if key.lower() == name]


class EngineConnection(asyncio.Protocol):
    """What a gateway connected to; takes whole requests with a ``Content-Length`` and plays their scripts."""

    transport: asyncio.Transport

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine = engine
        self.received = b""
        self.deaf = False
        self.closed = Signal()
        self.writable = asyncio.Event()
        self.writable.set()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.engine.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()
        self.writable.set()
        if self.task is not None:
            self.task.cancel()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def data_received(self, data: bytes) -> None:
        if self.engine.early:
            self.transport.write(self.engine.early)
            self.transport.pause_reading()
            self.engine.early = b""
            self.deaf = True
        if self.deaf:
            return
        self.received += data
        head, end, rest = self.received.partition(b"\r\n\r\n")
        if end:
            call = Call(head, rest, self)
            length = int((call.header(b"content-length") or [b"0"])[0])
            assert len(rest) <= length, "more than one request at once"
            if len(rest) == length:
                self.received = b""
                self.task = asyncio.ensure_future(self.play(call, self.engine.arrived(call)))

    async def play(self, call: Call, script: tuple[Step, ...]) -> None:
        for step in script:
            if isinstance(step, bytes):
                self.transport.write(step)
                call.sent += len(step)
                await self.writable.wait()
            elif isinstance(step, asyncio.Event):
                await step.wait()
            elif step is CLOSE:
                self.transport.close()
            else:
                linger = struct.pack("ii", 1, 0)
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.transport.abort()
            await asyncio.sleep(0)
        call.played.set()


class ScriptedEngine:
    """An engine that answers what it is told to, byte by byte; each request takes the next script."""

    CLOSE, RESET, END = CLOSE, RESET, END

    def __init__(self, scheme: str) -> None:
        self.url = f"{scheme}://127.0.0.1:"
        self.calls: list[Call] = []
        self.connections: list[EngineConnection] = []
        self.early = b""
        self._scripts: list[tuple[Step, ...]] = []
        self._otherwise: tuple[tuple[Step, ...], ...] = ((self.answer(),),)
        self._dice = random.Random(0)

    def listens(self, server: asyncio.Server) -> None:
        self.url += str(server.sockets[0].getsockname()[1])
        self._server = server

    def plays(self, *steps: Step) -> None:
        """The script of the next request."""
        self._scripts.append(steps)

    def says(self, body: bytes = b'{"ok": true}', status: int = 200, *lines: bytes) -> None:
        """A whole answer to the next request."""
        self.plays(self.answer(body, status, *lines))

    def streams(self, *steps: Step) -> None:
        """A chunked stream of events as the answer to the next request; bytes are sent as chunks."""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        self.plays(head, *(chunk(s) if isinstance(s, bytes) and s is not END else s for s in steps))

    def otherwise(self, *scripts: tuple[Step, ...], dice: random.Random | None = None) -> None:
        """One of these, drawn with ``dice``, is the script of every request that has none of its own."""
        self._otherwise = scripts
        self._dice = dice or self._dice

    def answers_early(self, answer: bytes) -> None:
        """Send ``answer`` as soon as a request begins, and read nothing more on that connection."""
        self.early = answer

    @staticmethod
    def answer(body: bytes = b'{"ok": true}', status: int = 200, *lines: bytes) -> bytes:
        head = [b"HTTP/1.1 %d Said" % status, b"content-type: application/json", *lines]
        return b"\r\n".join((*head, b"content-length: %d" % len(body), b"", body))

    def arrived(self, call: Call) -> tuple[Step, ...]:
        self.calls.append(call)
        return self._scripts.pop(0) if self._scripts else self._dice.choice(self._otherwise)

    async def call(self, number: int = 0) -> Call:
        """The request of that number, as soon as it is here."""
        await until(lambda: len(self.calls) > number)
        return self.calls[number]

    async def close(self) -> None:
        self._server.close()
        for connection in self.connections:
            connection.transport.abort()
        await until(lambda: all(connection.closed.is_set() for connection in self.connections))


@pytest.fixture
async def engine() -> AsyncIterator[Callable[..., Awaitable[ScriptedEngine]]]:
    """Starts scripted engines; ``tls`` gives one a certificate, ``there=False`` an address where nobody listens."""
    engines: list[ScriptedEngine] = []

    async def start(*, tls: ssl.SSLContext | None = None, there: bool = True, scheme: str = "") -> ScriptedEngine:
        loop = asyncio.get_running_loop()
        made = ScriptedEngine(scheme or ("https" if tls else "http"))
        server = await loop.create_server(lambda: EngineConnection(made), "127.0.0.1", 0, ssl=tls)
        made.listens(server)
        engines.append(made)
        if not there:
            server.close()
        return made

    yield start
    for each in engines:
        await each.close()


# --- clients


class Reply(NamedTuple):
    """A response; ``whole`` unless the connection ended before its framing said so."""

    status: int
    lines: list[tuple[bytes, bytes]]
    body: bytes
    whole: bool

    def header(self, name: str) -> str | None:
        values = [value.decode("latin-1") for key, value in self.lines if key.decode().lower() == name]
        assert len(values) <= 1, f"{name} comes {len(values)} times"
        return values[0] if values else None

    @property
    def error(self) -> Any:
        return msgspec.json.decode(self.body)["error"]

    @property
    def code(self) -> str:
        return str(self.error["code"])


class Client:
    """A client on a socket of its own, which reads nothing unless told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    async def drained(self) -> None:
        await within(self._writer.drain())

    async def head(self) -> Reply:
        """The head of a response, informational or not; its body is read with ``chunk`` and ``rest``."""
        text = await within(self._reader.readuntil(b"\r\n\r\n"))
        first, *lines = text[:-4].split(b"\r\n")
        pairs = [line.partition(b": ") for line in lines]
        return Reply(int(first.split(b" ")[1]), [(name, value) for name, _, value in pairs], b"", False)

    async def chunk(self) -> bytes:
        """The next chunk; empty at the end."""
        size = int(await within(self._reader.readuntil(b"\r\n")), 16)
        return (await within(self._reader.readexactly(size + 2)))[:-2]

    async def some(self) -> bytes:
        """Whatever comes next; empty at the end."""
        return await within(self._reader.read(1 << 20))

    async def everything(self) -> bytes:
        """All until the connection ends, which raises ``ConnectionError`` if it breaks."""
        data = b""
        while piece := await self.some():
            data += piece
        return data

    async def rest(self) -> bytes:
        """All until the connection ends or breaks."""
        try:
            return await self.everything()
        except ConnectionError:
            return b""

    async def reply(self) -> Reply:
        """A response with its body."""
        reply = await self.head()
        try:
            body, whole = await self._body(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            body, whole = b"", False
        return reply._replace(body=body, whole=whole)

    async def _body(self, reply: Reply) -> tuple[bytes, bool]:
        if reply.status == 204:
            return b"", True
        if reply.header("transfer-encoding") == "chunked":
            pieces = []
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while piece := await self.chunk():
                    pieces.append(piece)
                return b"".join(pieces), True
            return b"".join(pieces), False
        length = reply.header("content-length")
        if length is None:
            return await self.rest(), True
        return await within(self._reader.readexactly(int(length))), True

    async def ask(self, data: bytes) -> Reply:
        self.send(data)
        return await self.reply()

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        linger = struct.pack("ii", 1, 0)
        self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()


# --- the gateway


class House:
    """A gateway that listens on ``port``, with the engines given as its healthy backends ``a``, ``b``, ``c`` ..."""

    until = staticmethod(until)

    def __init__(self, gateway: Gateway, port: int, state: ServerState) -> None:
        self.gateway = gateway
        self._state = state
        self.relay = gateway.relay
        self.fleet = gateway.fleet
        self.port = port
        self.clients: list[Client] = []

    async def client(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    async def ask(self, data: bytes | None = None) -> Reply:
        """The answer to ``data``, or to a plain request, on a connection of its own."""
        return await (await self.client()).ask(self.post() if data is None else data)

    @staticmethod
    def post(
        body: bytes | Mapping[str, Any] | None = None, *lines: bytes, path: str = "/v1/chat/completions", **more: Any
    ) -> bytes:
        """A request for ``MODEL``; ``more`` are further fields of its body."""
        raw = body if isinstance(body, bytes) else msgspec.json.encode({"model": MODEL, **(body or {}), **more})
        head = [b"POST %s HTTP/1.1" % path.encode(), b"host: gateway", b"content-length: %d" % len(raw), *lines]
        return b"\r\n".join((*head, b"", raw))

    @staticmethod
    def get(path: str, *lines: bytes, method: str = "GET") -> bytes:
        head = [f"{method} {path} HTTP/1.1".encode(), b"host: gateway", *lines]
        return b"\r\n".join((*head, b"", b""))

    def pending(self) -> dict[str, int]:
        return {backend.name: backend.pending for backend in self.fleet.backends()}

    def pass_time(self, seconds: float) -> None:
        """Have every live request believe that ``seconds`` have passed."""
        for exchange in list(self.relay.live):
            exchange.check_time(perf_counter() + seconds)

    def wait_for(self, seconds: float) -> None:
        """Have every client that waits believe that it has waited for so long."""
        self.relay.waiting_room.look(perf_counter() + seconds)

    async def congested(self, engine: ScriptedEngine) -> None:
        """Until nothing goes on any more because a client reads too slowly what comes from ``engine``."""
        turns = itertools.count()
        before: list[int] = []

        def settled() -> bool:
            nonlocal turns, before
            doors = cast("set[HttpToolsProtocol]", self._state.connections)
            sent = [call.sent for call in engine.calls]
            if sent != before or not any(door.flow.write_paused for door in doors):
                turns, before = itertools.count(), sent
            return next(turns) > 100

        await until(settled)

    def seconds_pass(self, seconds: int) -> None:
        """What the idlers do in so many seconds."""
        for connection in cast("set[FastDoor]", self._state.connections):
            for _ in range(seconds):
                connection.look(connection.loop.time())

    def cancel_tasks(self) -> None:
        """What a stopping server does to requests that take too long."""
        for task in self._state.tasks:
            task.cancel()

    def shut_down(self) -> None:
        """What a stopping server tells its connections."""
        for connection in list(self._state.connections):
            connection.shutdown()

    async def gone(self) -> None:
        """Until no client is connected any more."""
        await until(lambda: not self._state.connections and not self._state.tasks)

    async def quiet(self) -> None:
        """Until nothing is live; then nothing may be pending either."""
        await until(lambda: not self.relay.live)
        assert set(self.pending().values()) <= {0}


class Launched:
    """An engine that the gateway launches: it gets ready, fails and ends when the test says so."""

    def __init__(self, house: House, backend: str, **limits: Any) -> None:
        self.replica = f"{MODEL}@{backend}"
        self.state = ReplicaState.STOPPED
        self.starts = 0
        self._start: asyncio.Future[None] | None = None
        scheduler = Fifo()
        self.queue = Host("local", scheduler, self, self)
        concurrency = limits.pop("concurrency", 0)
        hosted = HostedReplica(replica=self.replica, model=MODEL, concurrency=concurrency)
        facts = HostFacts(name="local", replicas={self.replica: hosted})
        scheduler.prepare(self.queue, OneAtATime(), facts, SchedulingLimits(**limits))
        hosts = cast("dict[str, Host]", house.relay.hosts)
        hosts[backend] = self.queue

    async def gets_ready(self) -> None:
        """Its start ends well, once there is one, and its host knows."""
        start = await self._started()
        self.state = ReplicaState.READY
        start.set_result(None)
        await until(lambda: not self.queue._swaps)

    async def does_not_start(self, error: Exception) -> None:
        """Its start fails, once there is one."""
        (await self._started()).set_exception(error)

    def ends(self) -> None:
        """It goes away by itself."""
        self.state = ReplicaState.FAILED
        self.queue.went_away(self.replica)

    async def is_left_alone(self) -> None:
        """Until its start was given up."""
        await until(lambda: self.state is ReplicaState.STOPPED)

    async def _started(self) -> asyncio.Future[None]:
        await until(lambda: self._start is not None and not self._start.done())
        assert self._start is not None
        return self._start

    # --- as its host sees it

    def states(self) -> Mapping[str, ReplicaState]:
        return {self.replica: self.state}

    async def start(self, replica: str) -> None:
        self.starts += 1
        self.state = ReplicaState.STARTING
        self._start = asyncio.get_running_loop().create_future()
        try:
            await self._start
        except BaseException:
            self.state = ReplicaState.STOPPED
            raise

    def refuse_too_soon(self, replica: str, evict: Sequence[str]) -> None: ...
    async def stop(self, replica: str, timeout: float | None) -> None: ...
    def swap_started(self, target: str, evict: tuple[str, ...]) -> None: ...
    def swap_done(self, done: SwapDone) -> None: ...
    def served(self, replica: str) -> None: ...
    def queue_changed(self) -> None: ...


@pytest.fixture
def launched() -> Callable[..., Launched]:
    """Makes a backend of a gateway one that is launched: ``launched(gateway, "a", concurrency=1)``."""
    return Launched


@pytest.fixture(scope="session")
def registry() -> Registry:
    return load_plugins(Plugins()).registry


@pytest.fixture(params=["fast", "asgi"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def only_fast(door: str) -> None:
    """For what uvicorn's own protocol decides where the ASGI door is behind it."""
    if door != "fast":
        pytest.skip("not the ASGI door's business")


@pytest.fixture
async def house(door: str, registry: Registry, engine: object) -> AsyncIterator[Callable[..., Awaitable[House]]]:
    """Opens gateways: ``await house(engine, other, routing={...}, clock=...)``; sections are those of the file.

    Afterwards no request may be left, and the loop must not have seen an exception that nobody handled.
    """
    loop = asyncio.get_running_loop()
    mishaps: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: mishaps.append(context))
    opened: list[tuple[House, asyncio.Server]] = []

    async def open_house(
        *engines: ScriptedEngine,
        clock: Callable[[], float] | None = None,
        backend: Mapping[str, Any] | None = None,
        **sections: Any,
    ) -> House:
        backends = {
            name: {"url": each.url, "models": [MODEL], **(backend or {})}
            for name, each in zip("abcdefgh", engines, strict=False)
        }
        backends |= sections.pop("backends", {})
        config = msgspec.convert({"backends": backends, **sections}, Config)
        gateway = Gateway(config, registry)
        for name, settings in config.backends.items():
            gateway.relay.upstreams[name] = Upstream(name, settings, config.timeouts)
            gateway.fleet.succeeded(name)
        if clock is not None:
            gateway.entrance.keyring = Keyring(config.auth.keys, clock)
        protocol = fast_door(gateway.entrance, cors=bool(config.server.cors)) if door == "fast" else HttpToolsProtocol
        settings_ = UvicornConfig(
            gateway.application,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws=WebSocketProtocol if door == "fast" else "websockets-sansio",
            ws_max_size=config.server.max_body,
        )
        state = ServerState()
        server = await loop.create_server(
            lambda: protocol(config=settings_, server_state=state, app_state={}, _loop=loop), "127.0.0.1", 0
        )
        made = House(gateway, server.sockets[0].getsockname()[1], state)
        opened.append((made, server))
        return made

    yield open_house
    for made, server in opened:
        server.close()
        for client in made.clients:
            client.close()
        await made.gone()
        await made.quiet()
        made.relay.close()
    assert not mishaps, mishaps
