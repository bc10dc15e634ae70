"""Refuses ambiguous request lines and heads that the parser accepts.

If a proxy in front of the gateway sees the end of a request elsewhere than the gateway does, an attacker can send a
request past the proxy's checks (request smuggling: RFC 9112, 11.2). So an ambiguous head is refused, never interpreted.
"""

from __future__ import annotations

import re
from typing import Final

from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Headers

MOST_HEAD: Final = 64 * 1024
"""Bytes of a head."""
_FRAMING: Final = frozenset({b"host", b"transfer-encoding"})
_EMPTY_LINES: Final = re.compile(rb"[\r\n]*")


def check_size(target: bytes, headers: Headers) -> None:
    """Raises ``InvalidRequest`` for a head that is too large. A client may send one in a single piece."""
    if len(target) + sum([len(name) + len(value) + len(": \r\n") for name, value in headers]) > MOST_HEAD:
        raise head_too_large()


def head_too_large() -> InvalidRequest:
    """The error for it."""
    return InvalidRequest(f"More than {MOST_HEAD} bytes of head")


def check_framing(version: str, headers: Headers) -> bool:
    """Whether the body comes in chunks. Raises ``InvalidRequest`` for an ambiguous head.

    Names of ``headers`` are in lower case.
    """
    if version != "1.1" and version != "1.0":
        raise InvalidRequest(f"HTTP/{version} is not supported: use HTTP/1.1")
    chunked = False
    hosts = 0
    for name, value in headers:
        if name not in _FRAMING:
            continue
        if name == b"host":
            hosts += 1
        else:
            # The parser also accepts lists that end in "chunked"; the gateway cannot undo the other codings.
            if chunked or value.strip(b" \t").lower() != b"chunked":
                raise InvalidRequest("The only supported Transfer-Encoding is 'chunked', named once")
            chunked = True
    if chunked and version == "1.0":
        raise InvalidRequest("HTTP/1.0 has no Transfer-Encoding: use HTTP/1.1")
    if hosts > 1 or (not hosts and version == "1.1"):
        raise InvalidRequest("A request needs exactly one Host header (RFC 9112, 3.2)")
    return chunked


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: Headers) -> bytes:
    """The head of the same request without its ``Upgrade`` header."""
    kept = [name + b": " + value + b"\r\n" for name, value in headers if name != b"upgrade"]
    return b"%s %s HTTP/%s\r\n%s\r\n" % (method, target, version.encode(), b"".join(kept))


class ChunkWalk:
    """Follows a body that the parser accepts from chunk to chunk (RFC 9112, 7.1), in the pieces in which it comes."""

    __slots__ = ("_in_trailers", "_line", "_skip")

    def __init__(self) -> None:
        self._skip = 0
        self._line = b""
        self._in_trailers = False

    def end(self, data: bytes, at: int) -> int:
        """The end in ``data`` of the body that continues at ``at``; the length of ``data`` if it does not end there."""
        shift, behind = at - len(self._line), len(data)
        data = self._line + data[at:]
        at, self._line = self._skip, b""
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            at = end + 2
            if self._in_trailers and not line:
                return at + shift
            if not self._in_trailers:
                size = int(line.partition(b";")[0], 16)
                self._in_trailers = not size
                at += size + 2 if size else 0
        self._skip = max(at - len(data), 0)
        self._line = data[at:]
        return behind


class RequestLines:
    """Holds what was received since the last complete head, and knows where in it the next request begins.

    ``body`` counts the bytes of the last request's body in it, as the parser reads them. ``_end`` is where the last
    request line ends in it, 0 if that came earlier. ``_chunks`` follows a body that comes in chunks: their sizes take
    bytes that the parser does not show.
    """

    __slots__ = ("_again", "_chunks", "_end", "_pieces", "body")

    def __init__(self) -> None:
        self.body = 0
        self._pieces: list[bytes] = []
        self._end = 0
        self._chunks: ChunkWalk | None = None
        self._again = False

    def add(self, data: bytes) -> None:
        """``data`` was received."""
        self._pieces.append(data)

    def check(self, method: bytes, target: bytes, chunked: bool) -> None:
        """Refuse extra spaces and other protocols, which the parser lets pass.

        Another server may split such a line elsewhere (RFC 9112, 3). ``chunked``: the body will come in chunks.
        """
        if self._again:
            self._again = False
            return
        line = b"%s %s HTTP/" % (method, target)
        first = not self._end and not self.body and self._chunks is None
        if not first or not self._pieces[0].startswith(line):
            data = b"".join(self._pieces)
            start = self._begins(data)
            if not data.startswith(line, start):
                raise InvalidRequest("The request line needs HTTP, and one space on each side of its target")
            self._end = start
        self._end += len(line)
        self.body = 0
        self._chunks = ChunkWalk() if chunked else None

    def _begins(self, data: bytes) -> int:
        """Where the request behind the last one begins in ``data``, all that is held."""
        at = self._behind_head(data)
        at = at + self.body if self._chunks is None else self._chunks.end(data, at)
        return _EMPTY_LINES.match(data, at).end()  # type: ignore[union-attr]  # it always matches

    def _behind_head(self, data: bytes) -> int:
        return data.index(b"\r\n\r\n", self._end) + 4 if self._end else 0

    def read_again(self) -> None:
        """The parser gets the last head once more."""
        self._again = True

    def clear(self, whole: bool) -> None:
        """Drop everything held, because the head is complete. ``whole``: so is its request."""
        if whole:
            self._chunks = None
        elif self._chunks is not None:
            data = b"".join(self._pieces)
            self._chunks.end(data, self._behind_head(data))
        self._pieces.clear()
        self._end = self.body = 0
