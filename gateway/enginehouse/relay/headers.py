"""Which headers pass through the gateway."""

from __future__ import annotations

from collections.abc import Collection
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

NOT_TO_ENGINE = frozenset(
    # A compressed answer could not be continued on another engine, so none is asked for.
    _HOP_BY_HOP | _CREDENTIALS | {b"host", b"content-length", b"expect", b"accept-encoding", b"x-request-id"}
)
"""The headers of a client's request that do not pass to an engine."""
# Which pages of a browser may read an answer is for server.cors to say.
_CORS = {
    b"access-control-" + name
    for name in (b"allow-origin", b"allow-credentials", b"allow-methods", b"allow-headers", b"expose-headers")
}
FOR_THE_GATEWAY = frozenset(
    _HOP_BY_HOP
    | _CORS
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


def passing_lines(headers: Headers, withheld: Collection[bytes]) -> bytes:
    """A client's headers as an engine gets them: without those ``withheld``, ``Connection`` and what that names."""
    lines = []
    named = b""
    for name, value in headers:
        if name not in withheld:
            lines.append(name + b": " + value + b"\r\n")
        elif name == b"connection":
            named += b"," + value if named else value
    return b"".join(without_named(lines, named))


def without_named(lines: list[bytes], connection: bytes) -> list[bytes]:
    """``lines`` without those that the value of a ``Connection`` header makes hop-by-hop (RFC 9110, 7.6.1)."""
    if connection.lower() in _PLAIN_CONNECTION:
        return lines
    named = {token.strip().lower() for token in connection.split(b",")}
    return [line for line in lines if line.partition(b":")[0] not in named]


def read_lines(lines: bytes) -> Headers:
    """Header lines as they stand on the wire, taken apart."""
    pairs = (line.partition(b": ") for line in lines.split(b"\r\n") if line)
    return [(name, value) for name, _, value in pairs]


@lru_cache(maxsize=4096)
def origin_lines(backend: str, model: str, reason: str) -> bytes:
    """The header lines that tell a client who answered and why."""
    named = {"backend": backend, "model": model, "reason": reason}
    # What is not printable ASCII is percent-encoded: an engine chooses the names of its models.
    lines = (f"x-enginehouse-{key}: {quote(text, safe=_PRINTABLE)}\r\n" for key, text in named.items())
    return "".join(lines).encode("ascii")
