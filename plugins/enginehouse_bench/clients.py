"""Many clients in one process, each on a connection of its own, and their measurements."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import cast
from urllib.parse import urlsplit

import httptools
import msgspec

from enginehouse import GatewayError

_PATH = "/v1/chat/completions"
_ANSWERS_AFTER_S = 60.0


class Question(msgspec.Struct, frozen=True):
    """The request that clients send. ``size``: of its body in bytes, at least. ``unique``: each has a head of its own,
    by a ``traceparent``.
    """

    model: str
    size: int = 200
    unique: bool = False
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)

    def wires(self, url: str, stream: bool) -> Iterator[bytes]:
        """The bytes of one request after another to the server at ``url``."""
        body = self._body(stream)
        head = f"POST {urlsplit(url).path.rstrip('/')}{_PATH} HTTP/1.1\r\nhost: {urlsplit(url).netloc}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
        if not self.unique:
            return itertools.repeat(f"{head}\r\n".encode() + body)
        traced = f"{head}traceparent: 00-%032x-%016x-00\r\n\r\n".encode()
        return (traced % (number, number) + body for number in itertools.count(1 << 64))

    def _body(self, stream: bool) -> bytes:
        def encoded(text: str) -> bytes:
            message = {"role": "user", "content": text}
            asked: dict[str, object] = {"model": self.model, "messages": [message], "max_tokens": 16}
            return msgspec.json.encode(asked | ({"stream": True, "max_tokens": 100} if stream else {}))

        return encoded("Hello" + " hello" * max(0, (self.size - len(encoded("Hello")) + 5) // 6))


class Seen(msgspec.Struct):
    """The measurements of one contender's clients; all times are in seconds.

    ``waits``: of each request, until its answer was whole, or until the first byte of a stream's body. ``chunks``: the
    pieces of all streams.
    """

    waits: list[float] = msgspec.field(default_factory=list)
    chunks: int = 0
    took: float = 0.0
    failure: str = ""


class _BenchClient(asyncio.Protocol):
    """Sends one request after another, the next one when an answer is whole and ``more()``."""

    def __init__(self, wires: Iterator[bytes], stream: bool, seen: Seen, more: Callable[[], bool]) -> None:
        self.done = asyncio.get_running_loop().create_future()
        self._wires, self._stream, self._seen, self._more = wires, stream, seen, more
        self._parser = httptools.HttpResponseParser(self)
        self._transport = cast(asyncio.Transport, None)
        self._sent = 0.0
        self._is_begun = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"an answer that is not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self._fail("a connection that was closed before the answer was whole")

    def on_body(self, body: bytes) -> None:
        if self._stream:
            if not self._is_begun:
                self._is_begun = True
                self._seen.waits.append(perf_counter() - self._sent)
            self._seen.chunks += body.count(b"\n\n")

    def on_message_complete(self) -> None:
        if not self._stream:
            self._seen.waits.append(perf_counter() - self._sent)
        if (status := self._parser.get_status_code()) != 200:
            self._fail(f"status {status}")
        elif self._more():
            self._parser = httptools.HttpResponseParser(self)
            self._send()
        else:
            self.done.set_result(None)
            self._transport.close()

    def _send(self) -> None:
        self._sent = perf_counter()
        self._is_begun = False
        self._transport.write(next(self._wires))

    def _fail(self, how: str) -> None:
        self._seen.failure = how
        if not self.done.done():
            self.done.set_result(None)
        self._transport.abort()


async def ask(url: str, question: Question, clients: int, seconds: float) -> Seen:
    """Let ``clients`` send one request after another for ``seconds``. Raises ``GatewayError`` for any failure."""
    return await _ask(url, question, clients, stream=False, seconds=seconds)


async def read_streams(url: str, question: Question, streams: int) -> Seen:
    """Read ``streams`` streams at once, each to its end. Raises ``GatewayError`` for any failure."""
    return await _ask(url, question, streams, stream=True, seconds=0.0)


async def _ask(url: str, question: Question, clients: int, stream: bool, seconds: float) -> Seen:
    loop, seen, parts = asyncio.get_running_loop(), Seen(), urlsplit(url)
    wires = question.wires(url, stream)
    began = perf_counter()
    end = began + seconds
    try:
        connections = [
            loop.create_connection(
                lambda: _BenchClient(wires, stream, seen, lambda: perf_counter() < end),
                parts.hostname or "",
                parts.port or 80,
            )
            for _ in range(clients)
        ]
        asking = [client.done for _, client in await asyncio.gather(*connections)]
        _, late = await asyncio.wait(asking, timeout=_ANSWERS_AFTER_S)
    except OSError as error:
        raise GatewayError(f"{url} cannot be measured: {error}") from None
    seen.took = perf_counter() - began
    if seen.failure or late:
        raise GatewayError(f"{url} cannot be measured: {seen.failure or 'an answer did not come within a minute'}")
    return seen
