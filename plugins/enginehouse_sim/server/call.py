"""One HTTP request and the answer to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar
from urllib.parse import parse_qs

import msgspec

from enginehouse import InvalidRequest
from enginehouse_sim.clock import Clock

if TYPE_CHECKING:
    from enginehouse_sim.server.connection import Connection
    from enginehouse_sim.server.faults.kinds import Fault

Event = Mapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
T = TypeVar("T")

DONE = b"data: [DONE]\n\n"
"""The end of a stream."""


class Call:
    """A request, read as a whole, and the only way to answer it: at once, or as a stream of events.

    ``fault`` is what goes wrong with the answer; ``streams`` tells that a stream has begun, and ``chunks`` how many
    chunks of it were sent so far.
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
        self.fault: Fault | None = None
        self.streams = False
        self.chunks = 0
        self._receive = receive
        self._send = send

    async def read(self) -> None:
        """Read the whole body."""
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
        """The first value of ``name`` in the query."""
        return parse_qs(self.query).get(name, [default])[0]

    def decode(self, type: type[T]) -> T:
        """The body as ``type``. Raises ``InvalidRequest`` when it is anything else."""
        try:
            return msgspec.json.decode(self.body, type=type)
        except msgspec.DecodeError as error:
            raise InvalidRequest(f"The body cannot be understood: {error}") from None

    async def json(self, value: object, status: int = 200) -> None:
        """Answer with JSON."""
        await self.answer(msgspec.json.encode(value), b"application/json", status)

    async def answer(self, body: bytes, content_type: bytes, status: int = 200) -> None:
        """Answer at once."""
        if self.fault:
            await self.fault.at_start(self, stream=False)
        length = b"%d" % len(body)
        await self._start(status, [(b"content-type", content_type), (b"content-length", length)])
        if self.fault:
            body = await self.fault.at_body(self, body)
        await self._body(body, more=False)

    async def open_stream(self) -> None:
        """Begin to answer with a stream of events."""
        if self.fault:
            await self.fault.at_start(self, stream=True)
        await self._start(200, [(b"content-type", b"text/event-stream; charset=utf-8")])
        self.streams = True

    async def event(self, value: object, name: str = "") -> None:
        """Send one event of a stream, in one write, and let everyone else have a turn."""
        prefix = f"event: {name}\ndata: ".encode() if name else b"data: "
        await self._body(prefix + msgspec.json.encode(value) + b"\n\n", more=True)
        self.chunks += 1
        if self.fault:
            await self.fault.after_chunk(self)
        await asyncio.sleep(0)

    async def close_stream(self, last: bytes = b"") -> None:
        """End a stream, with ``last`` as its last bytes."""
        await self._body(last, more=False)

    async def part(self, body: bytes) -> None:
        """Send bytes of a body that has not come to its end."""
        await self._body(body, more=True)

    async def hang_up(self, garbage: bytes = b"") -> NoReturn:
        """Close the connection under the answer, with ``garbage`` written past the protocol before."""
        if garbage:
            self.connection.transport.write(garbage)
        self.connection.transport.close()
        await asyncio.get_running_loop().create_future()  # cancelled once the connection is gone
        raise AssertionError

    async def _start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _body(self, body: bytes, more: bool) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
