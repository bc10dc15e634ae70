"""Both parsers without a network, and h11 to compare them with."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import h11
import httptools
import pytest
from uvicorn import Config as UvicornConfig
from uvicorn.server import ServerState

from enginehouse.api.entrance import Entrance
from enginehouse.api.fast_door import FastDoor, fast_door
from enginehouse.api.keys import Keyring
from enginehouse.config.schema import Backend, Timeouts
from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.relay.door import Door
from enginehouse.relay.relay import Relay
from enginehouse.relay.upstream.connection import AnswerHead, Connection
from enginehouse.relay.upstream.pool import Pool
from enginehouse.relay.upstream.upstream import Upstream


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """What the gateway runs on where it can, and what it runs on elsewhere."""
    if importlib.util.find_spec("uvloop") is None:
        return {"asyncio": asyncio.new_event_loop}
    import uvloop

    return {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


class FakeTransport(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborted = False
        self.closing = False

    def write(self, data: Any) -> None:
        if not self.closing:
            self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Request(NamedTuple):
    """A request as somebody understood it; names of headers in lower case."""

    method: bytes
    path: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes


def _path(target: bytes) -> bytes:
    """The path and query of a target, which are what decides where a request goes."""
    url = httptools.parse_url(target)
    return bytes(url.path or b"") + (b"?" + url.query if url.query else b"")


# --- requests


class Reading(NamedTuple):
    """What the oracle makes of a stream: whole requests, then perhaps a refusal."""

    requests: list[Request]
    refusal: str


def read_requests(stream: bytes) -> Reading:
    """h11 as a server that answers everything at once."""
    peer = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    peer.receive_data(stream)
    requests: list[Request] = []
    head: h11.Request | None = None
    body = b""
    try:
        while (event := peer.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                assert head is not None
                requests.append(Request(head.method, _path(head.target), tuple(head.headers), body))
                peer.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
                peer.send(h11.EndOfMessage())
                if peer.our_state is not h11.DONE:
                    break
                peer.start_next_cycle()
            else:
                break
    except (h11.RemoteProtocolError, httptools.HttpParserError) as error:
        return Reading(requests, str(error))
    return Reading(requests, "")


class Passage(NamedTuple):
    """What came of a stream at the door: what it passed on, what it answered, whether it then hung up."""

    requests: list[Request]
    answer: bytes
    closed: bool
    aborted: bool


class _Exchange:
    def __init__(self, engine: StubEngine, door: Door, path: str, headers: Headers) -> None:
        self._engine = engine
        self._door = door
        self._path = path
        self._headers = headers

    def begin(self, body: bytes, _: object) -> None:
        wire = self._engine.upstream.post(self._path, self._headers, b"id", body)
        self._engine.requests.append(only_request(wire))
        self._engine.unanswered.append(self)
        if self._engine.at_once:
            self._engine.answer()

    def cancel(self, error: RequestError) -> None:
        self._door.start(error.status, b"", 0)
        self._door.finish(b"")

    def client_gone(self) -> None:
        self._engine.unanswered.remove(self)

    def say(self) -> None:
        self._door.start(200, b"", 2)
        self._door.finish(b"ok")


def only_request(wire: bytes) -> Request:
    """The one request that ``wire`` is to h11: framed by one length, nothing before it and nothing after."""
    requests, refusal = read_requests(wire)
    assert not refusal
    assert len(requests) == 1
    names = [name for name, _ in requests[0].headers]
    assert names.count(b"content-length") == 1
    assert names.count(b"host") == 1
    assert names.count(b"x-request-id") == 1
    assert b"transfer-encoding" not in names
    assert wire.endswith(b"\r\n\r\n" + requests[0].body)
    ours = (b"host", b"content-length", b"x-request-id")
    return requests[0]._replace(headers=tuple(line for line in requests[0].headers if line[0] not in ours))


class StubEngine:
    """Stands where the relay is, and behind it where the engines and the application are."""

    def __init__(self) -> None:
        self.upstream = Upstream("a", Backend(url="http://engine:1"), Timeouts())
        self.requests: list[Request] = []
        self.unanswered: list[_Exchange] = []
        self.at_once = False

    def check_open(self) -> None:
        pass

    def open(self, door: Door, path: str, headers: Headers) -> _Exchange:
        return _Exchange(self, door, path, headers)

    def answer(self) -> None:
        while self.unanswered:
            self.unanswered.pop(0).say()

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", scope["path"] != "/nowhere"
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        path = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        lines = tuple((name, value.strip()) for name, value in scope["headers"])
        self.requests.append(Request(scope["method"].encode(), path, lines, body))
        status = 404 if scope["path"] == "/nowhere" else 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})


class FakeDoor:
    """A connection to the fast door, with ``engine`` behind it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = StubEngine()
        entrance = Entrance(cast(Relay, self.engine), Keyring([]), max_body=1 << 20)
        self._type = fast_door(entrance, cors=False)
        self._config = UvicornConfig(
            self.engine.application,
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            ws="none",
            timeout_keep_alive=75,
        )
        self._loop = loop
        self.reopen()

    def reopen(self, loop: Any = None) -> None:
        """A new connection, perhaps with another clock."""
        self.engine.requests, self.engine.unanswered, self.engine.at_once = [], [], False
        self.transport = FakeTransport()
        self.connection: FastDoor = self._type(self._config, ServerState(), {}, loop or self._loop)
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        if not self.transport.closing:
            self.connection.data_received(data)

    async def settle(self) -> None:
        """Until all that has come so far is answered."""
        before = -1
        while before < len(self.transport.written):
            before = len(self.transport.written)
            self.engine.answer()
            for _ in range(6):
                await asyncio.sleep(0)

    async def _pass(self, segments: Sequence[bytes], patient: bool) -> Passage:
        self.reopen()
        self.engine.at_once = not patient
        for segment in segments:
            self.send(segment)
            if not patient:
                await self.settle()
        await self.settle()
        requests, transport = self.engine.requests, self.transport
        passage = Passage(list(requests), transport.written, transport.closing, transport.aborted)
        self.connection.connection_lost(None)
        await self.settle()
        return passage

    def passes(self, *segments: bytes, patient: bool = False) -> Passage:
        """What comes of a stream that arrives like that.

        A ``patient`` client sends everything before the first answer; else each request is answered at once.
        """
        return self._loop.run_until_complete(self._pass(segments, patient))


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


@pytest.fixture(scope="session")
def door(loop: asyncio.AbstractEventLoop) -> Iterator[FakeDoor]:
    log = logging.getLogger("uvicorn.error")
    log.setLevel(logging.ERROR)
    yield FakeDoor(loop)
    log.setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def oracle() -> Callable[[bytes], Reading]:
    return read_requests


# --- responses


class Answer(NamedTuple):
    """What came of an engine's bytes: a whole answer, or none; whether the connection is kept, and what followed."""

    status: int | None
    body: bytes
    kept: bool
    rest: bytes = b""
    stream: bool = False


class _Pool:
    def __init__(self) -> None:
        self.kept: list[Connection] = []

    def release(self, connection: Connection) -> None:
        self.kept.append(connection)

    def forget(self, connection: Connection) -> None:
        pass


class _Receiver:
    def __init__(self) -> None:
        self.head: AnswerHead | None = None
        self.body = b""
        self.complete = False
        self.broke = ""

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        assert not self.complete
        assert not self.broke
        assert head is None or self.head is None, "two heads"
        self.head = head or self.head
        self.body += body
        self.complete = complete

    def broken(self, why: str, *, stale: bool) -> None:
        assert not self.complete
        assert not self.broke
        self.broke = why


def hear(*segments: bytes, ends: bool = True) -> Answer:
    """What the relay makes of an engine's answer that arrives like that, and then ``ends`` with its connection."""
    pool, receiver, transport = _Pool(), _Receiver(), FakeTransport()
    connection = Connection(cast(Pool, pool))
    connection.connection_made(transport)
    connection.send(receiver, b"request")
    for segment in segments:
        if not transport.closing:
            connection.data_received(segment)
    kept = bool(pool.kept) and connection.usable
    if ends:
        connection.connection_lost(None)
        assert receiver.complete or receiver.broke
    if not receiver.complete:
        return Answer(None, b"", kept)
    assert receiver.head is not None
    length = receiver.head.length
    assert length is None or length == len(receiver.body)
    return Answer(receiver.head.status, receiver.body, kept, stream=receiver.head.stream)


def read_answer(stream: bytes) -> Answer:
    """What h11 makes of it, as a client."""
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    peer.send(h11.EndOfMessage())
    peer.receive_data(stream)
    peer.receive_data(b"")
    status, body = None, b""
    try:
        while not isinstance(event := peer.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            elif not isinstance(event, h11.InformationalResponse):
                return Answer(None, b"", False)
    except h11.RemoteProtocolError:
        return Answer(None, b"", False)
    return Answer(status, body, peer.their_state is h11.DONE, peer.trailing_data[0])


@pytest.fixture(scope="session")
def relay_hears() -> Callable[..., Answer]:
    return hear


@pytest.fixture(scope="session")
def h11_hears() -> Callable[[bytes], Answer]:
    return read_answer
