"""A client's connection, without a network and without a relay."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, cast

from starlette.types import Receive, Scope, Send

from enginehouse.aio.write_batch import WriteBatch
from enginehouse.config.routing import Aliases
from enginehouse.config.schema import BackendSettings, ServerSettings, TimeoutSettings
from enginehouse.domain.errors import RequestError
from enginehouse.domain.request import Headers
from enginehouse.http.admission import Admission, BodyMemory, OpensRequests
from enginehouse.http.client_connection import ClientConnection
from enginehouse.http.cross_origin import Cors, CrossOriginProtection
from enginehouse.http.inbound import DateLine
from enginehouse.http.relayed_paths import RelayedPaths
from enginehouse.http.server import HttpServer
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse_callers import MemoryLimits
from enginehouse_callers.accounts import CallerLimits
from enginehouse_callers.keyring import Keyring
from enginehouse_callers.prices import Prices
from tests.support.fake_transport import FakeTransport
from tests.support.h11_peer import Request, read_requests
from tests.support.keys import asking


class Passage(NamedTuple):
    """What the gateway did with a stream: which requests it passed on, what it answered, how the connection ended."""

    requests: list[Request]
    answer: bytes
    closed: bool
    aborted: bool


class _Exchange:
    def __init__(self, engine: StubRelay, writer: ResponseWriter, path: str, headers: Headers) -> None:
        self._engine = engine
        self.writer = writer
        self._path = path
        self._headers = headers

    def begin(self, body: bytes, _: object) -> None:
        wire = self._engine.upstream.post(self._path, self._headers, b"id", body)
        self._engine.requests.append(only_request(wire))
        self._engine.unanswered.append(self)
        if self._engine.at_once:
            self._engine.answer()

    def cancel(self, error: RequestError) -> None:
        self.writer.start(error.status, b"", 0)
        self.writer.finish(b"")

    def client_disconnected(self) -> None:
        self._engine.unanswered.remove(self)

    def say(self) -> None:
        self.writer.start(200, b"", 2)
        self.writer.finish(b"ok")


def only_request(wire: bytes) -> Request:
    """The one request that h11 reads in ``wire``: framed by one length, with nothing before or after it."""
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


class StubRelay:
    """Takes the place of the relay, of the engines behind it and of the application."""

    def __init__(self) -> None:
        self.upstream = Upstream("a", BackendSettings(url="http://engine:1"), TimeoutSettings(), Outside())
        self.requests: list[Request] = []
        self.unanswered: list[_Exchange] = []
        self.at_once = False
        self.closed = False

    def check_open(self) -> None:
        pass

    def request_id(self, headers: Headers) -> bytes:
        return b"r1"

    def open(self, writer: ResponseWriter, path: str, headers: Headers) -> _Exchange:
        return _Exchange(self, writer, path, headers)

    def answer(self) -> None:
        while self.unanswered:
            self.unanswered.pop(0).say()

    async def application(self, scope: Scope, receive: Receive, send: Send) -> None:
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


class FakeClient:
    """A client's connection, with ``engine`` behind it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = StubRelay()
        self.keyring = Keyring([], CallerLimits(MemoryLimits(), Prices({})))
        admission = Admission(
            cast(OpensRequests, self.engine),
            asking(self.keyring),
            CrossOriginProtection(ServerSettings()),
            max_body=1 << 20,
            body_memory=BodyMemory(0),
            writes=WriteBatch(),
            date=DateLine(lambda: 0).now,
        )
        paths = RelayedPaths(admission, [], lambda: cast(Aliases, None), lambda: [])
        self._server = HttpServer(self.engine.application, admission, paths, Cors(()), set(), set())
        self._loop = loop
        self.reopen()

    def reopen(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Open a new connection, on ``loop`` if given."""
        self.engine.requests, self.engine.unanswered, self.engine.at_once = [], [], False
        self.transport = FakeTransport()
        self.connection = ClientConnection(self._server, loop=loop or self._loop)
        self.connection.connection_made(self.transport)

    def send(self, data: bytes) -> None:
        if not self.transport.closing:
            self.connection.data_received(data)

    async def settle(self) -> None:
        """Wait until everything received so far is answered."""
        before: tuple[int, int] | None = None
        while before != (before := (len(self.transport.written), len(self.engine.requests))):
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
        fast_path = Passage(list(requests), transport.written, transport.closing, transport.aborted)
        self.connection.connection_lost(None)
        await self.settle()
        return fast_path

    def passes(self, *segments: bytes, patient: bool = False) -> Passage:
        """Send a stream in these segments.

        A ``patient`` client sends everything before the first answer. Else each request is answered at once.
        """
        return self._loop.run_until_complete(self._pass(segments, patient))
