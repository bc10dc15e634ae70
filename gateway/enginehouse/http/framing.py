"""Refuses ambiguous request heads that the parser accepts.

If a proxy in front of the gateway sees the end of a request elsewhere than the gateway does, an attacker can send a
request past the proxy's checks (request smuggling: RFC 9112, 11.2). So an ambiguous head is refused, never interpreted.
"""

from __future__ import annotations

from typing import Final

from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Headers

MOST_HEAD: Final = 64 * 1024
"""Bytes of a head."""
_FRAMING: Final = frozenset({b"host", b"transfer-encoding"})


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
