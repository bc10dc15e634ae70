"""The connections to one engine."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

import msgspec

from enginehouse.domain.errors import UpstreamError
from enginehouse.relay.upstream.connection import Connection

_MOST_IDLE = 256


class Origin(msgspec.Struct, frozen=True):
    """Where an engine listens; ``prefix`` is the path before ``/v1``. Without a ``host`` it is nowhere."""

    host: str
    port: int
    tls: bool
    prefix: str

    @classmethod
    def parse(cls, url: str) -> Origin:
        """The origin of ``http://host:port/prefix``."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        return cls(parts.hostname or "", parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of a ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


class Pool:
    """Kept-alive connections to one origin, the last used first.

    ``tls``: how its certificate is checked, where it has one.
    """

    def __init__(self, origin: Origin, *, verify_tls: bool = True) -> None:
        self.origin = origin
        self._idle: list[Connection] = []
        self._closed = False
        self.tls = _tls_context(verify_tls) if origin.tls else None

    def take(self) -> Connection | None:
        """An idle connection, or ``None`` if there is none."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def connect(self) -> Connection:
        """A new connection. Raises ``UpstreamError``."""
        loop = asyncio.get_running_loop()
        origin = self.origin
        if not origin.host:
            raise UpstreamError("its engine does not run")
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self), origin.host, origin.port, ssl=self.tls
            )
        except (OSError, UnicodeError) as error:  # the latter for names that no host can have
            raise UpstreamError(f"cannot connect to {origin.authority}: {error}") from error
        return connection

    def release(self, connection: Connection) -> None:
        """Keep ``connection`` for a later request."""
        if self._closed or len(self._idle) >= _MOST_IDLE:
            connection.close()
        else:
            self._idle.append(connection)

    def forget(self, connection: Connection) -> None:
        """``connection`` is gone."""
        if connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close what is idle now, and what is in use when its request has ended."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


def _tls_context(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
