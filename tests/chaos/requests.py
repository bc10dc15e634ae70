"""Reads what the gateway sends to an engine, more strictly than engines do."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.chaos.streams import Stream

_HEAD = re.compile(
    rb"([A-Z]+) ([!-~]+) HTTP/1\.1\r\n((?:[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\x00-\x08\x0a-\x1f\x7f]*\r\n)*)\r\n"
)
_CHUNK = re.compile(rb"([0-9a-f]{1,8})\r\n")


class Head(NamedTuple):
    """The head of a request. Names of headers are in lower case."""

    method: str
    target: bytes
    headers: dict[bytes, bytes]

    @property
    def wire(self) -> bytes:
        """The head of a request without a body, as bytes again."""
        lines = b"".join(b"%s: %s\r\n" % line for line in self.headers.items())
        return b"%s %s HTTP/1.1\r\n%s\r\n" % (self.method.encode(), self.target, lines)

    @property
    def length(self) -> int:
        """The length of the body; -1 if it comes in chunks."""
        return -1 if b"transfer-encoding" in self.headers else int(self.headers.get(b"content-length", b"0"))


class NotHttp(Exception):
    """What came is no request."""


class RequestReader:
    """Reads the requests of one connection. Both methods return ``None`` at its end, and raise ``NotHttp``."""

    def __init__(self, stream: Stream, data: bytes = b"") -> None:
        self._stream = stream
        self.data = data

    async def head(self) -> Head | None:
        """The next head. More than one request at once is none: the gateway does not pipeline."""
        while (end := self.data.find(b"\r\n\r\n") + 4) < 4:
            if not await self._more():
                return None
        found = _HEAD.fullmatch(self.data, 0, end)
        if found is None:
            raise NotHttp(self.data[:end])
        lines = [line.split(b": ", 1) for line in found[3].split(b"\r\n")[:-1]]
        headers = {name.lower(): value for name, value in lines}
        framing = (b"host", b"content-length", b"transfer-encoding")
        if len(headers) < len(lines) and any(sum(name.lower() == one for name, _ in lines) > 1 for one in framing):
            raise NotHttp(self.data[:end])
        if b"host" not in headers or headers.keys() >= {b"content-length", b"transfer-encoding"}:
            raise NotHttp(self.data[:end])
        self.data = self.data[end:]
        return Head(found[1].decode(), found[2], headers)

    async def body(self, head: Head) -> bytes | None:
        """The body that follows ``head``."""
        if head.length >= 0:
            return await self._take(head.length)
        body = b""
        while True:
            while (found := _CHUNK.match(self.data)) is None:
                if len(self.data) > 10:
                    raise NotHttp(self.data[:20])
                if not await self._more():
                    return None
            self.data = self.data[found.end() :]
            size = int(found[1], 16)
            chunk = await self._take(size + 2)
            if chunk is None:
                return None
            if chunk[size:] != b"\r\n":
                raise NotHttp(chunk[-20:])
            if not size:
                return body
            body += chunk[:size]

    async def _take(self, size: int) -> bytes | None:
        while len(self.data) < size:
            if not await self._more():
                return None
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    async def _more(self) -> bool:
        data = await self._stream.read()
        self.data += data
        return bool(data)
