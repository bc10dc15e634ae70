"""One HTTP request and its response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar
from urllib.parse import parse_qs

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.simulator.server.engine.clock import Clock

if TYPE_CHECKING:
    from enginehouse_sim.simulator.server.http.connection import Connection

Event = Mapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
"""The end of a stream."""


class ResponseHooks(Protocol):
    """Acts while a response is sent. Every kind of fault is one."""

    async def at_start(self, call: Call, stream: bool) -> None:
        """Act before the first byte of the response."""

    async def at_body(self, call: Call, body: bytes) -> bytes:
        """Act after the headers of a response sent at once. Return the body to send."""
        ...

    async def after_chunk(self, call: Call) -> None:
        """Act after a chunk of a stream; ``call.chunks`` is its number, from 1."""


class Call:
    """A request read as a whole, and the only way to respond: at once, or as a stream of events.

    ``hooks`` may disturb the response. ``streams``: whether a stream has begun; ``chunks``: the number of chunks sent.
    """

    def __init__(self, scope: Mapping[str, Any], receive: Receive, send: Send, clock: Clock) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.query: str = scope["query_string"].decode()
        self.target: str = scope["raw_path"].decode() + (f"?{self.query}" if self.query else "")
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.connection: Connection = scope["state"]["connection"]
        self.clock = clock
        self.body = b""
        self.hooks: ResponseHooks | None = None
        self.streams = False
        self.chunks = 0
        self._receive = receive
        self._send = send

    async def read(self) -> None:
        parts = []
        more = True
        while more:
            event = await self._receive()
            parts.append(event.get("body", b""))
            more = event.get("more_body", False)
        self.body = b"".join(parts)

    def header(self, name: bytes) -> bytes | None:
        """The first value of the header ``name`` (lower case), or ``None``."""
        return next((value for key, value in self.headers if key == name), None)

    def parameter(self, name: str, default: str) -> str:
        """The first value of ``name`` in the query, or ``default``."""
        return parse_qs(self.query).get(name, [default])[0]

    def decode(self, type: type[T]) -> T:
        """The body as ``type``. Raises ``InvalidRequest`` for any other body."""
        try:
            return msgspec.json.decode(self.body, type=type)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"The body cannot be understood: {error}") from None

    async def json(self, value: object, status: int = 200) -> None:
        """Respond with JSON."""
        await self.answer(msgspec.json.encode(value), b"application/json", status)

    async def answer(self, body: bytes, content_type: bytes, status: int = 200) -> None:
        """Respond at once."""
        if self.hooks:
            await self.hooks.at_start(self, stream=False)
        length = b"%d" % len(body)
        await self._start(status, [(b"content-type", content_type), (b"content-length", length)])
        if self.hooks:
            body = await self.hooks.at_body(self, body)
        await self._body(body, more=False)

    async def open_stream(self) -> None:
        """Begin a stream of events."""
        if self.hooks:
            await self.hooks.at_start(self, stream=True)
        await self._start(200, [(b"content-type", b"text/event-stream; charset=utf-8")])
        self.streams = True

    async def event(self, value: object, name: str = "") -> None:
        """Send one event in one write, and give other tasks a turn."""
        prefix = f"event: {name}\ndata: ".encode() if name else b"data: "
        await self._body(prefix + msgspec.json.encode(value) + b"\n\n", more=True)
        self.chunks += 1
        if self.hooks:
            await self.hooks.after_chunk(self)
        await asyncio.sleep(0)

    async def close_stream(self, last: bytes = b"") -> None:
        """End the stream with ``last`` as its last bytes."""
        await self._body(last, more=False)

    async def part(self, body: bytes) -> None:
        """Send a part of the body."""
        await self._body(body, more=True)

    async def hang_up(self, garbage: bytes = b"") -> NoReturn:
        """Write ``garbage`` past HTTP's framing, and close the connection. Does not return: the task is cancelled."""
        if garbage:
            self.connection.transport.write(garbage)
        self.connection.transport.close()
        await asyncio.get_running_loop().create_future()  # cancelled once the connection is gone
        raise AssertionError

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _body(self, body: bytes, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
