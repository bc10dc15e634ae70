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
_FRAMING: Final = frozenset({b"host", b"content-length", b"transfer-encoding"})
_CHUNK_SIZE: Final = re.compile(rb"[0-9a-fA-F]+")


def head_too_large() -> InvalidRequest:
    """The error for it."""
    return InvalidRequest(f"More than {MOST_HEAD} bytes of head")


def ambiguous_end() -> InvalidRequest:
    """The error for a request that the parser sees to end elsewhere than its head says."""
    return InvalidRequest("The end of the request is ambiguous")


def check_framing(version: str, headers: Headers) -> tuple[int, bool]:
    """The length of the body, and whether it comes in chunks. Raises ``InvalidRequest`` for an ambiguous head.

    Names of ``headers`` are in lower case.
    """
    if version != "1.1" and version != "1.0":
        raise InvalidRequest(f"HTTP/{version} is not supported: use HTTP/1.1")
    chunked = False
    hosts = length = 0
    for name, value in headers:
        if name not in _FRAMING:
            continue
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            length = int(value)  # the parser has found only digits, once
        else:
            # The parser also accepts lists that end in "chunked"; the gateway cannot undo the other codings.
            if chunked or value.strip(b" \t").lower() != b"chunked":
                raise InvalidRequest("The only supported Transfer-Encoding is 'chunked', named once")
            chunked = True
    if chunked and version == "1.0":
        raise InvalidRequest("HTTP/1.0 has no Transfer-Encoding: use HTTP/1.1")
    if hosts > 1 or (not hosts and version == "1.1"):
        raise InvalidRequest("A request needs exactly one Host header (RFC 9112, 3.2)")
    return length, chunked


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: Headers) -> bytes:
    """The head of the same request without its ``Upgrade`` header."""
    kept = [name + b": " + value + b"\r\n" for name, value in headers if name != b"upgrade"]
    return b"%s %s HTTP/%s\r\n%s\r\n" % (method, target, version.encode(), b"".join(kept))


class RequestPieces:
    """Splits what a client sends into pieces that end where a head ends, and where a request ends.

    So the parser sees no request before the one ahead of it is answered, and each begins a piece. ``head``: what has
    come of one that is not complete. ``done``: the last piece ended a request, if the parser sees its end there, too.
    """

    __slots__ = ("_chunked", "_in_trailers", "_line", "_skip", "done", "head")

    def __init__(self) -> None:
        self.head = b""
        self._line = b""
        self._chunked = self._in_trailers = self.done = False
        self._skip = 0

    def check_line(self, method: bytes, target: bytes) -> None:
        """Refuse extra spaces and other protocols in the first line of ``head``, which the parser lets pass.

        Another server may split such a line elsewhere (RFC 9112, 3).
        """
        if not self.head.lstrip(b"\r\n").startswith(b"%s %s HTTP/" % (method, target)):
            raise InvalidRequest("The request line needs HTTP, and one space on each side of its target")

    def begin_body(self, length: int, chunked: bool) -> None:
        """The head is complete. The body has this ``length``, or comes in chunks."""
        self.head = self._line = b""
        self._chunked, self._in_trailers = chunked, False
        self._skip = 0 if chunked else length
        self.done = not (chunked or length)

    def take(self, data: bytes, in_body: bool) -> int:
        """The length of the next piece, with which ``data`` begins. ``in_body``: it continues a body."""
        if in_body and self._chunked:
            return self._follow_chunks(data)
        if in_body:
            end = min(self._skip, len(data))
            self._skip -= end
            self.done = not self._skip
            return end
        before = self.head[-3:]
        end = (before + data).find(b"\r\n\r\n") + 4 - len(before)
        piece = data[:end] if end > 0 else data
        self.head += piece
        return len(piece)

    def _follow_chunks(self, data: bytes) -> int:
        """As ``take``, up to the empty line behind the last chunk (RFC 9112, 7.1)."""
        held, data = len(self._line), self._line + data
        at, self._line = self._skip, b""
        while (end := data.find(b"\r\n", at)) >= 0:
            line = data[at:end]
            at = end + 2
            if not self._in_trailers:
                digits = _CHUNK_SIZE.match(line)
                if digits is None:
                    break  # the parser refuses it
                size = int(digits[0], 16)
                self._in_trailers = not size
                at += size + 2 if size else 0
            elif not line:
                self.done = True
                return at - held
        self._skip = max(at - len(data), 0)
        self._line = data[at:]
        return len(data) - held
