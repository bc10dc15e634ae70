"""Which headers pass through the gateway."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import quote

from enginehouse.domain.request import Headers

_PLAIN_CONNECTION = frozenset({b"", b"keep-alive", b"close"})
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
FOR_THE_GATEWAY = frozenset(
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
"""The headers of an engine's answer that do not pass to the client."""


def request_head(fixed: bytes, headers: Headers, request_id: bytes, length: int, *, authorization: bool) -> bytes:
    """The head of a request to an engine: the engine's own lines, the client's that may pass, ours.

    ``authorization`` lets the client's ``Authorization`` header pass.
    """
    lines = [fixed]
    connection = b""
    for line in headers:
        name, value = line
        if name not in _NOT_TO_ENGINE or (authorization and name == b"authorization"):
            lines += (name, b": ", value, b"\r\n")
        elif name == b"connection":
            connection = value
    if connection.lower() not in _PLAIN_CONNECTION:
        kept = without_named(headers, connection)
        return request_head(fixed, kept, request_id, length, authorization=authorization)
    lines.append(b"x-request-id: %s\r\ncontent-length: %d\r\n\r\n" % (request_id, length))
    return b"".join(lines)


def without_named(headers: list[tuple[bytes, bytes]], connection: bytes) -> list[tuple[bytes, bytes]]:
    """``headers`` without those that the value of a ``Connection`` header makes hop-by-hop (RFC 9110, 7.6.1)."""
    if connection.lower() in _PLAIN_CONNECTION:
        return headers
    named = {token.strip().lower() for token in connection.split(b",")} | {b"connection"}
    return [line for line in headers if line[0] not in named]


@lru_cache(maxsize=4096)
def origin_headers(backend: str, model: str, reason: str) -> tuple[tuple[bytes, bytes], ...]:
    """The headers that tell a client who answered and why."""
    named = {"backend": backend, "model": model, "reason": reason}
    # What is not printable ASCII is percent-encoded: an engine chooses the names of its models.
    return tuple(
        (b"x-enginehouse-" + key.encode(), quote(text, safe=_PRINTABLE).encode()) for key, text in named.items()
    )
