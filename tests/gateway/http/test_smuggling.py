"""The known ways to smuggle a request, against a gateway that listens, with an engine behind it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import NamedTuple, cast

import msgspec
import pytest

from enginehouse.app import Gateway
from enginehouse.config.schema import Config
from enginehouse.relay.upstream.outside import Outside
from enginehouse.relay.upstream.upstream import Upstream
from tests.support.http_server import connect, http_server
from tests.support.installed_plugins import installed_plugins
from tests.support.own_address import OWN_ADDRESS
from tests.support.waiting import within

BODY = b'{"model":"m"}'
FIRST = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
HIDDEN = b'POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: 28\r\n\r\n{"model":"m","hidden":"yes"}'
LAST = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
LENGTH = b"Content-Length: %d\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
CHUNK = b"%x\r\n%s\r\n" % (len(BODY), BODY)
END = b"0\r\n\r\n"


class Engine(asyncio.Protocol):
    """Keeps what reaches it; answers every request, once ``may_answer``."""

    def __init__(self) -> None:
        self.received = b""
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._answers: set[asyncio.Task[None]] = set()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        for _ in range(data.count(b" HTTP/1.1\r\n")):
            self._answers.add(asyncio.ensure_future(self._answer()))

    async def _answer(self) -> None:
        self._transport.write(b'HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n"not')
        await self.may_answer.wait()
        if not self._transport.is_closing():
            self._transport.write(b'hidden"')

    @property
    def requests(self) -> list[bytes]:
        return re.findall(rb"(\S+) HTTP/1.1\r\n", self.received)


class OpenedGateway:
    """A gateway on a port."""

    def __init__(self, gateway: Gateway, engine: Engine, port: int) -> None:
        self.gateway = gateway
        self.engine = engine
        self._port = port

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(OWN_ADDRESS, self._port)

    async def say(self, stream: bytes) -> bytes:
        """All that is answered to ``stream``, until the connection ends."""
        reader, writer = await self.open()
        writer.write(stream)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := await within(reader.read(1 << 16)):
                answer += piece
        writer.close()
        await self.quiet()
        return answer

    async def quiet(self) -> None:
        """Until no request is under way."""
        for _ in range(1000):
            await asyncio.sleep(0)
            if not self.gateway.relay.live:
                return
        raise TimeoutError("a request is still under way")


@pytest.fixture
async def house() -> AsyncIterator[OpenedGateway]:
    loop = asyncio.get_running_loop()
    engine = Engine()
    engines = await loop.create_server(lambda: engine, OWN_ADDRESS, 0)
    url = f"http://{OWN_ADDRESS}:{engines.sockets[0].getsockname()[1]}"
    config = msgspec.convert({"backends": {"a": {"url": url, "models": ["m"]}}}, Config)
    gateway = Gateway(config, installed_plugins())
    gateway.relay.context.upstreams["a"] = Upstream("a", config.backends["a"], config.timeouts, Outside())
    gateway.fleet.succeeded("a")
    serving = http_server(gateway)
    server = await loop.create_server(lambda: connect(serving), OWN_ADDRESS, 0)
    yield OpenedGateway(gateway, engine, server.sockets[0].getsockname()[1])
    server.close()
    engines.close()
    gateway.relay.close()


class Vector(NamedTuple):
    """What is sent before ``LAST``, the statuses that are answered, the requests that the engine gets."""

    stream: bytes
    statuses: list[int]
    reach_engine: list[bytes]


def refused(stream: bytes) -> Vector:
    return Vector(stream + HIDDEN, [400], [])


def harmless(stream: bytes) -> Vector:
    return Vector(stream, [200, 200], [b"/v1/completions"])


def sized(*lines: bytes, first: bytes = FIRST, body: bytes = BODY) -> bytes:
    return first + b"".join(lines) + LENGTH % len(body) + b"\r\n" + body


VECTORS = {
    "CL.TE": refused(FIRST + LENGTH % (len(END) + len(HIDDEN)) + CHUNKED + b"\r\n" + END),
    "TE.CL": refused(FIRST + CHUNKED + LENGTH % 4 + b"\r\n" + CHUNK + END),
    "TE.TE, the second unknown": refused(FIRST + CHUNKED + b"Transfer-Encoding: x\r\n\r\n" + CHUNK + END),
    "TE.TE, the first unknown": refused(FIRST + b"Transfer-Encoding: x\r\n" + CHUNKED + b"\r\n" + CHUNK + END),
    "TE.TE, alike": refused(FIRST + CHUNKED + CHUNKED + b"\r\n" + CHUNK + END),
    "xchunked": refused(FIRST + b"Transfer-Encoding: xchunked\r\n\r\n" + CHUNK + END),
    "a list of codings": refused(FIRST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + CHUNK + END),
    "chunked not last": refused(FIRST + b"Transfer-Encoding: chunked, identity\r\n\r\n" + CHUNK + END),
    "a vertical tab before chunked": refused(FIRST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + CHUNK + END),
    "chunked in HTTP/1.0": refused(FIRST.replace(b"1.1", b"1.0") + CHUNKED + b"\r\n" + CHUNK + END),
    "CL.0 on a path that reads no body": Vector(
        sized(first=b"POST /nowhere HTTP/1.1\r\nHost: a\r\n", body=HIDDEN), [404, 200], []
    ),
    "0.CL on a GET": Vector(sized(first=b"GET /health HTTP/1.1\r\nHost: a\r\n", body=HIDDEN), [200, 200], []),
    "a folded Transfer-Encoding": refused(FIRST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + CHUNK + END),
    "a folded Content-Length": refused(FIRST + b"X-A: b\r\n Content-Length: 0\r\n" + LENGTH % 13 + b"\r\n" + BODY),
    "line feeds as chunk ends": refused(FIRST + CHUNKED + b"\r\n" + CHUNK.replace(b"\r", b"") + b"0\n\n"),
    "a line feed behind a chunk": refused(FIRST + CHUNKED + b"\r\n" + CHUNK[:-2] + b"\n" + END),
    "a line feed in a chunk extension": refused(FIRST + CHUNKED + b"\r\n" + CHUNK.replace(b"\r", b";a\n\r", 1) + END),
    "a carriage return in a chunk extension": refused(FIRST + CHUNKED + b"\r\nd;a\rb\r\n" + BODY + b"\r\n" + END),
    "a chunk size that overflows": refused(FIRST + CHUNKED + b"\r\n1000000000000000d\r\n" + BODY + b"\r\n" + END),
    "a signed chunk size": refused(FIRST + CHUNKED + b"\r\n+d\r\n" + BODY + b"\r\n" + END),
    "a length among the trailers": refused(FIRST + CHUNKED + b"\r\n" + CHUNK + b"0\r\nContent-Length: 9\r\n\r\n"),
    "a space before the colon": refused(FIRST + b"Transfer-Encoding : chunked\r\n\r\n" + CHUNK + END),
    "no name before the colon": refused(sized(b": chunked\r\n")),
    "two lengths": refused(FIRST + LENGTH % 13 + LENGTH % 0 + b"\r\n" + BODY),
    "the same length twice": refused(FIRST + LENGTH % 13 + LENGTH % 13 + b"\r\n" + BODY),
    "a list of lengths": refused(FIRST + b"Content-Length: 13, 13\r\n\r\n" + BODY),
    "a signed length": refused(FIRST + b"Content-Length: +13\r\n\r\n" + BODY),
    "a control character in a name": refused(sized(b"X\x01A: b\r\n")),
    "a NUL in a value": refused(sized(b"X-A: b\0c\r\n")),
    "a carriage return in a value": refused(sized(b"X-A: b\rTransfer-Encoding: chunked\r\n")),
    "a line feed in a value": refused(sized(b"X-A: b\nTransfer-Encoding: chunked\r\n")),
    "a control character in the target": refused(sized(first=FIRST.replace(b"/v1", b"/\x01v1"))),
    "a control character in the request line": refused(sized(first=FIRST.replace(b" HTTP", b"\x0bHTTP"))),
    "a line feed behind the request line": refused(sized(first=FIRST.replace(b"\r", b"", 1))),
    "no version": refused(sized(first=FIRST.replace(b" HTTP/1.1", b""))),
    "HTTP/2.0": refused(sized(first=FIRST.replace(b"HTTP/1.1", b"HTTP/2.0"))),
    "CONNECT": refused(sized(first=b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n")),
    "an upgrade to h2c": harmless(
        sized(b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: a\r\n")
    ),
    "an upgrade to WebSockets": harmless(sized(b"Connection: Upgrade\r\nUpgrade: websocket\r\n")),
    "an upgrade elsewhere, with a body": Vector(
        sized(b"Connection: Upgrade\r\nUpgrade: h2c\r\n", first=b"GET /health HTTP/1.1\r\nHost: a\r\n", body=HIDDEN),
        [200, 200],
        [],
    ),
    "something after the last request": Vector(sized(b"Connection: close\r\n") + HIDDEN, [200], [b"/v1/completions"]),
    "the absolute form": harmless(sized(first=FIRST.replace(b"/v1", b"http://b:1/v1"))),
    "two hosts": refused(sized(b"Host: b\r\n")),
    "the same host twice": refused(sized(b"Host: a\r\n")),
    "two hosts in HTTP/1.0": refused(sized(b"Host: b\r\n", first=FIRST.replace(b"1.1", b"1.0"))),
    "no host": refused(sized(first=FIRST.replace(b"Host: a\r\n", b""))),
    "no host on another path": refused(b"GET /health HTTP/1.1\r\n\r\n"),
    "two hosts on another path": refused(b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    "two spaces before the target": refused(sized(first=FIRST.replace(b" /v1", b"  /v1"))),
    "two spaces behind the target": refused(sized(first=FIRST.replace(b" HTTP", b"  HTTP"))),
    "two spaces on another path": refused(b"GET  /health HTTP/1.1\r\nHost: a\r\n\r\n"),
    "two spaces in an upgrade": refused(
        b"GET  /health HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    ),
    "RTSP for HTTP": refused(sized(first=FIRST.replace(b"HTTP", b"RTSP"))),
    "framing named as hop-by-hop": harmless(sized(b"Connection: content-length, host, x-request-id\r\n")),
    "chunks": harmless(FIRST + CHUNKED + b"\r\n" + CHUNK + b"0\r\nX-A: b\r\nAuthorization: c\r\n\r\n"),
}


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
async def test_nothing_can_be_smuggled_past_the_gateway(house: OpenedGateway, vector: Vector) -> None:
    answer = await house.say(vector.stream + LAST)
    assert [int(status) for status in re.findall(rb"HTTP/1.1 (\d{3}) ", answer)] == vector.statuses
    assert house.engine.requests == vector.reach_engine
    assert b"hidden" not in house.engine.received
    if vector.reach_engine:
        head, _, body = house.engine.received.partition(b"\r\n\r\n")
        assert body == BODY
        assert head.lower().count(b"\r\nhost: %s:" % OWN_ADDRESS.encode()) == head.lower().count(b"\r\nhost:") == 1
        assert b"\r\ncontent-length: 13" in head
        assert b"transfer-encoding" not in head
    if vector.statuses == [400]:
        error = msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["error"]
        assert error["code"] == "invalid_request"
        assert error["message"]


async def test_no_line_that_any_connection_header_names_goes_on(house: OpenedGateway) -> None:
    lines = b"X-A: 1\r\nX-B: 1\r\nX-C: 1\r\nConnection: x-a\r\nConnection: keep-alive\r\nConnection: X-B\r\n"
    await house.say(sized(lines) + LAST)
    assert re.findall(rb"\r\n(x-.): 1", house.engine.received) == [b"x-c"]


@pytest.mark.parametrize(
    "garbage", [b"\0\0\0", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", HIDDEN.replace(b": 28", b": +28")]
)
async def test_garbage_in_the_middle_of_an_answer_is_refused_behind_it(house: OpenedGateway, garbage: bytes) -> None:
    house.engine.may_answer.clear()
    reader, writer = await house.open()
    writer.write(sized())
    answer = await within(reader.readuntil(b"not"))
    writer.write(garbage)
    house.engine.may_answer.set()
    with contextlib.suppress(ConnectionError):
        answer += await within(reader.read())
    writer.close()
    await house.quiet()
    assert re.findall(rb"HTTP/1.1 (\d+)", answer) == [b"200", b"400"]
    assert house.engine.requests == [b"/v1/completions"]


@pytest.mark.parametrize("path", [b"/v1/completions", b"/v1/completions?x=y", b"/upstream/m/x", b"/api/explain/swap"])
async def test_a_body_that_breaks_off_is_answered_when_nothing_else_is(house: OpenedGateway, path: bytes) -> None:
    head = FIRST.replace(b"/v1/completions", path).replace(b"Host: a", b"Host: localhost") + CHUNKED + b"\r\n"
    answer = await house.say(head + CHUNK + b"nonsense")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert house.engine.requests == []


async def test_a_request_line_that_comes_in_pieces_or_behind_others_is_read(house: OpenedGateway) -> None:
    reader, writer = await house.open()
    plain = sized() + b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n" + sized() + LAST
    for at in range(len(plain)):
        writer.write(plain[at : at + 1])
        await writer.drain()
    answer = await within(reader.read())
    writer.close()
    assert re.findall(rb"HTTP/1.1 (\d{3}) ", answer) == [b"200"] * 4
    assert re.findall(rb"HTTP/1.1 (\d{3}) ", await house.say(b"\r\n" + plain)) == [b"200"] * 4


async def test_an_earlier_request_does_not_excuse_a_line_with_extra_spaces(house: OpenedGateway) -> None:
    odd = sized(first=FIRST.replace(b" /v1", b"  /v1"))
    answer = await house.say(sized() + odd)
    assert answer.count(b"HTTP/1.1 200") <= 1
    assert len(house.engine.requests) <= 1
