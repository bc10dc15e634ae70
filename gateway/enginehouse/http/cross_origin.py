"""Web pages of other origins: keeps them away from a gateway without keys, and lets those in ``server.cors`` read.

A gateway without keys trusts every client that can reach it, and a browser reaches it on behalf of every page that it
shows. Browsers name the page's origin in ``Origin``, or say ``Sec-Fetch-Site: cross-site``. A page whose own name leads
to the gateway's address (DNS rebinding) is of the gateway's origin to a browser; that name is then in ``Host``.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import gethostname
from typing import NamedTuple

from enginehouse.config.schema import ServerSettings
from enginehouse.domain.errors import Forbidden
from enginehouse.domain.names import matches_any
from enginehouse.domain.request import Headers

_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
"""Values of ``Sec-Fetch-Site`` for pages of another origin (Fetch Metadata, 2.4)."""
_ANY = "*"
EXPOSED = ("x-request-id", *(f"x-enginehouse-{name}" for name in ("backend", "model", "reason", "overhead-us")))
"""The headers of an answer that such pages may read."""


class _Sender(NamedTuple):
    """The headers of a request that identify the page which sent it. Absent headers are empty."""

    host: str
    origins: Sequence[str]
    site: str
    referer: str


class Cors:
    """Adds the headers that ``origins`` need; ``"*"`` among them means every origin. Without any it adds none."""

    __slots__ = ("_any", "_exposed", "_origins")

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.encode("latin-1", "replace") for origin in origins)
        self._exposed = b"access-control-expose-headers: %s\r\n" % ", ".join(EXPOSED).encode()

    def lines(self, headers: Headers) -> bytes:
        """The header lines for the answer to a request with ``headers``, each ending in CRLF."""
        if not self._origins:
            return b""
        for name, value in headers:
            if name == b"origin":
                return self._exposed + self._allowing(value)
        return b""

    def _allowing(self, origin: bytes) -> bytes:
        if self._any:
            return b"access-control-allow-origin: *\r\n"
        if origin in self._origins:
            return b"access-control-allow-origin: %s\r\nvary: Origin\r\n" % origin
        return b""


class CrossOriginProtection:
    """Decides which web pages may call the gateway: its own, and those of the origins in ``server.cors``.

    A page is the gateway's own if its origin has the name in ``Host`` and that name is known. Known are the names of
    the loopback interface, ``server.host`` and ``server.allowed_hosts``. A gateway that listens on every address also
    knows the machine's name and every IP address: DNS cannot lead those elsewhere.
    """

    def __init__(self, server: ServerSettings) -> None:
        self._cors = frozenset(server.cors)
        self._bound = _address(_name(server.host))
        self._everywhere = not server.host or (self._bound is not None and self._bound.is_unspecified)
        own = [server.host, gethostname()] if self._everywhere else [server.host]
        self._patterns = [_name(pattern) for pattern in (*server.allowed_hosts, *filter(None, own))]

    def check(self, headers: Headers) -> None:
        """Raise ``Forbidden`` for an unknown ``Host``, and for a page of another origin."""
        sender = _sender(headers)
        if sender.host and not self._knows(sender.host):
            raise Forbidden(
                f"This gateway has no keys and does not know the Host '{sender.host[:256]}': "
                "add its name to server.allowed_hosts, or set auth.keys"
            )
        for origin in sender.origins:
            self._check(origin, sender)
        if not sender.origins and _ANY not in self._cors:
            if sender.site in _FOREIGN_SITES:
                raise _foreign("another origin")
            if not sender.site and sender.referer:  # browsers send no Sec-Fetch-Site to plain HTTP beyond loopback
                self._check("/".join(sender.referer.split("/", 3)[:3]), sender)

    def check_origin(self, headers: Headers) -> None:
        """Raise ``Forbidden`` if an ``Origin`` is neither the gateway's own nor in ``server.cors``."""
        sender = _sender(headers)
        for origin in sender.origins:
            self._check(origin, sender)

    def check_web_socket(self, headers: Headers) -> None:
        """As ``check_origin``, for a caller with a key: any ``Host`` may be the gateway's name.

        Browsers do not check CORS for WebSockets (RFC 6455, 10.2).
        """
        sender = _sender(headers)
        for origin in sender.origins:
            if not (self._in_cors(origin) or _authority(origin) == sender.host):
                raise _foreign(origin)

    def _check(self, origin: str, sender: _Sender) -> None:
        own = _authority(origin) == sender.host and self._knows(sender.host)
        if not (own or self._in_cors(origin)):
            raise _foreign(origin)

    def _in_cors(self, origin: str) -> bool:
        return _ANY in self._cors or origin in self._cors

    def _knows(self, host: str) -> bool:
        name = _name(host)
        if address := _address(name):
            return (
                address.is_loopback or self._everywhere or address == self._bound or matches_any(self._patterns, name)
            )
        return name == "localhost" or name.endswith(".localhost") or matches_any(self._patterns, name)


def _foreign(origin: str) -> Forbidden:
    return Forbidden(
        f"Pages of {origin[:256]} may not call this gateway: name their origin in server.cors, "
        "or its own name in server.allowed_hosts if the gateway served the page"
    )


def _sender(headers: Headers) -> _Sender:
    first: dict[bytes, str] = {}
    origins = []
    for name, value in headers:
        text = value.decode("latin-1")
        first.setdefault(name, text)
        if name == b"origin":
            origins.append(text)
    return _Sender(first.get(b"host", ""), origins, first.get(b"sec-fetch-site", ""), first.get(b"referer", ""))


def _authority(origin: str) -> str:
    return origin.partition("://")[2]


def _name(host: str) -> str:
    """The name or address in ``host``, without brackets and port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    name = host if host.count(":") > 1 else host.partition(":")[0]
    return name.lower().rstrip(".")


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(name)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address
