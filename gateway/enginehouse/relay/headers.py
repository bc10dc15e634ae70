"""Which headers pass through the gateway."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from enginehouse.domain.request import Headers

_PRINTABLE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")

_HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
_CREDENTIALS = {b"authorization", b"x-api-key", b"api-key", b"cookie"}

_NOT_TO_ENGINE = frozenset(
    # A compressed answer could not be continued on another engine, so none is asked for.
    _HOP_BY_HOP | _CREDENTIALS | {b"host", b"content-length", b"expect", b"accept-encoding", b"x-request-id"}
)
_NOT_TO_CLIENT = frozenset(
    _HOP_BY_HOP
    | {
        b"content-length",
        b"x-request-id",
        b"x-enginehouse-backend",
        b"x-enginehouse-model",
        b"x-enginehouse-reason",
        b"x-enginehouse-overhead-us",
    }
)


def request_head(fixed: bytes, headers: Headers, request_id: bytes, length: int, *, authorization: bool) -> bytes:
    """The head of a request to an engine: the engine's own lines, the client's that may pass, ours.

    ``authorization`` lets the client's ``Authorization`` header pass.
    """
    named = _named_in_connection(headers)
    lines = [fixed]
    for name, value in headers:
        if (name in _NOT_TO_ENGINE or name in named) and not (authorization and name == b"authorization"):
            continue
        lines += (name, b": ", value, b"\r\n")
    lines += (b"x-request-id: ", request_id, b"\r\ncontent-length: %d\r\n\r\n" % length)
    return b"".join(lines)


def response_headers(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers of an engine's answer that its client may see."""
    named = _named_in_connection(headers)
    return [line for line in headers if line[0] not in _NOT_TO_CLIENT and line[0] not in named]


@lru_cache(maxsize=4096)
def header_value(name: str) -> bytes:
    """A model's or backend's name as a header's value: what is not printable ASCII is percent-encoded."""
    return quote(name, safe=_PRINTABLE).encode("ascii")


def _named_in_connection(headers: Headers) -> frozenset[bytes]:
    """The headers that a ``Connection`` header makes hop-by-hop (RFC 9110, 7.6.1)."""
    for name, value in headers:
        if name == b"connection" and value.lower() not in (b"keep-alive", b"close"):
            return frozenset(token.strip().lower() for token in value.split(b","))
    return frozenset()
