"""HTTP clients that send and read bytes as a test says."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple, TypedDict

import msgspec

from tests.support.scripted_engine import abort
from tests.support.waiting import within


class ErrorFields(TypedDict):
    """The fields of an error envelope."""

    message: str
    type: str
    param: str | None
    code: str
    details: dict[str, Any]


class RawResponse(NamedTuple):
    """A response; ``whole`` unless the connection ended before its framing said so."""

    status: int
    lines: list[tuple[bytes, bytes]]
    body: bytes
    whole: bool

    def header(self, name: str) -> str | None:
        values = [value.decode("latin-1") for key, value in self.lines if key.decode().lower() == name]
        assert len(values) <= 1, f"{name} comes {len(values)} times"
        return values[0] if values else None

    def value(self, name: str) -> str:
        """The value of a header that must be there."""
        value = self.header(name)
        assert value is not None, f"there is no {name}"
        return value

    @property
    def error(self) -> ErrorFields:
        fields: ErrorFields = msgspec.json.decode(self.body)["error"]
        return fields

    @property
    def code(self) -> str:
        return self.error["code"]


class RawClient:
    """A client on a socket of its own. It reads nothing unless told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, data: bytes) -> None:
        self._writer.write(data)

    def send_eof(self) -> None:
        """Close the sending half of the connection."""
        self._writer.write_eof()

    def unsent(self) -> int:
        """Bytes that the kernel has not taken yet."""
        return self._writer.transport.get_write_buffer_size()

    async def drained(self) -> None:
        await within(self._writer.drain())

    async def head(self) -> RawResponse:
        """The head of a response, informational or not; its body is read with ``chunk`` and ``rest``."""
        text = await within(self._reader.readuntil(b"\r\n\r\n"))
        first, *lines = text[:-4].split(b"\r\n")
        pairs = [line.partition(b": ") for line in lines]
        return RawResponse(int(first.split(b" ")[1]), [(name, value) for name, _, value in pairs], b"", False)

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

    async def reply(self) -> RawResponse:
        """A response with its body."""
        reply = await self.head()
        try:
            body, whole = await self._body(reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            body, whole = b"", False
        return reply._replace(body=body, whole=whole)

    async def _body(self, reply: RawResponse) -> tuple[bytes, bool]:
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

    async def ask(self, data: bytes) -> RawResponse:
        self.send(data)
        return await self.reply()

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        abort(self._writer.transport)
