"""Which request heads are refused, though the parser takes them, because others may see their ends elsewhere.

A proxy in front of the gateway that disagrees with it about where a request ends can be made to pass on a request that
it never saw (request smuggling). So whatever has more than one reading is refused, not interpreted.
"""

from __future__ import annotations

from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.request import Headers


def check_framing(version: str, headers: Headers) -> None:
    """Raises ``InvalidRequest`` for a head of ``version`` with lower-case ``headers`` that leaves room for doubt."""
    if version != "1.1" and version != "1.0":
        raise InvalidRequest(f"HTTP/{version} is not spoken here: use HTTP/1.1")
    chunked = False
    for name, value in headers:
        if name == b"transfer-encoding":
            # The parser also takes lists that end in "chunked"; what the others do to the body nobody here undoes.
            if chunked or value.strip(b" \t").lower() != b"chunked":
                raise InvalidRequest("The only Transfer-Encoding understood here is 'chunked', named once")
            chunked = True
    if chunked and version == "1.0":
        raise InvalidRequest("HTTP/1.0 has no Transfer-Encoding: use HTTP/1.1")


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: Headers) -> bytes:
    """The head of the same request from a client that does not ask for another protocol."""
    kept = [name + b": " + value + b"\r\n" for name, value in headers if name != b"upgrade"]
    return b"%s %s HTTP/%s\r\n%s\r\n" % (method, target, version.encode(), b"".join(kept))
