"""How requests reach one backend: its address, its headers and the connections that are kept to it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from typing import Final, cast

from enginehouse.aio.write_batch import WriteBatch
from enginehouse.config.schema import BackendSettings, TimeoutSettings
from enginehouse.domain.errors import UpstreamError
from enginehouse.domain.request import Headers
from enginehouse.relay.heads import (
    CALLER,
    CREDENTIALS,
    NOT_TO_ENGINE,
    PRIORITY,
    TRACED_NOT_TO_ENGINE,
    passing_lines,
    read_lines,
    with_authorization,
)
from enginehouse.relay.upstream.connection import Connection
from enginehouse.relay.upstream.outside import Origin, Outside

_UNSEEN: Final = CREDENTIALS | {CALLER, PRIORITY}
_REACHING = ("url", "driver", "verify_tls", "api_key", "pass_authorization", "pass_caller")
_GRACE_S: Final = 0.02
"""After so long without use, idle connections above ``most_idle`` are closed."""
_UNUSED_S: Final = 2.0
"""After 2 to 3 s without use, every idle connection is closed: llama-server and vLLM close theirs after 5 s."""


class Pool:
    """Kept-alive connections to one origin, the last used first.

    Because of this order, those that the peaks of the last seconds did not need are not used, and so they are closed.
    An engine with a thread for each connection has a limit ``most_idle``: 50 idle ones held the 8 threads of a
    llama-server until its keep-alive ended, 5 s later. ``tls``: the context that checks the origin's certificate, if it
    has one.
    """

    def __init__(
        self, origin: Origin, outside: Outside, *, verify_tls: bool = True, most_idle: int | None = None
    ) -> None:
        self.origin = origin
        self._outside = outside
        self._now = outside.clock.now
        self._most_idle = sys.maxsize if most_idle is None else most_idle
        self._idle: list[Connection] = []
        self._writes = WriteBatch()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._slow = False
        self._closed = False
        self.tls = outside.tls(verify_tls) if origin.tls else None

    def take(self) -> Connection | None:
        """An idle connection, or ``None`` if there is none."""
        return self._idle.pop() if self._idle else None

    async def connect(self, *, keep: bool = True) -> Connection:
        """A new connection, for one request only unless ``keep``.

        Raises ``UpstreamError``, or ``Overloaded`` if the gateway has no file descriptor left.
        """
        origin = self.origin
        if not origin.host:
            raise UpstreamError("its engine does not run")
        try:
            connection = Connection(self.keep if keep else Connection.close, self._remove, self._writes, self._now)
            protocol = cast(asyncio.Protocol, connection)  # it has the methods, but a compiled class has no such base
            await self._outside.connector.connect(protocol, origin, self.tls)
        except (OSError, UnicodeError) as error:  # the latter for names that no host can have
            if (shortage := self._outside.shortage(error)) is not None:
                raise shortage from None
            raise UpstreamError(f"cannot connect to {origin.authority}: {error}") from error
        return connection

    def close(self) -> None:
        """Close idle connections now, and the others when their request has ended."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._idle:
            self._idle.pop().close()

    def keep(self, connection: Connection) -> None:
        """Lend ``connection``, which is idle now, to the next request."""
        if self._closed:
            connection.close()
            return
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()  # which asks the system for the process each time
        connection.kept_at = self._now()
        self._idle.append(connection)
        if self._timer is None or (self._slow and len(self._idle) > self._most_idle):
            self._sweep_later(loop)

    def _remove(self, connection: Connection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def _sweep_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._slow = len(self._idle) <= self._most_idle
        self._timer = loop.call_later(_UNUSED_S / 2 if self._slow else _GRACE_S, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Close the connections that were idle for too long: the first ones of the list."""
        self._timer = None
        idle, now = self._idle, self._now()
        while idle and now - idle[0].kept_at >= (_UNUSED_S if len(idle) <= self._most_idle else _GRACE_S):
            idle.pop(0).close()
        if idle:
            self._sweep_later(loop)


class Upstream:
    """A backend's address, its key, its time limits, its connections and the type of its driver.

    A backend without a ``url`` is ``launched``: it cannot be reached until ``locate`` gives it one. ``clock``: read by
    its requests. ``pass_caller``: it is told whose requests it gets.
    ``key_line``: the header line with the engine's own key, if it has one. ``most_idle``: as for ``Pool``.
    ``limits``: time limits of single models, in place of ``timeouts``.
    """

    def __init__(
        self,
        name: str,
        settings: BackendSettings,
        timeouts: TimeoutSettings,
        outside: Outside,
        *,
        most_idle: int | None = None,
    ) -> None:
        self.name = name
        self.driver = settings.driver
        self.timeouts = settings.timeouts or timeouts
        self.limits: Mapping[str, TimeoutSettings] = {}
        self.outside = outside
        self.clock = outside.clock
        self.launched = not settings.url
        self._verify_tls = settings.verify_tls
        self._most_idle = most_idle
        self.pool = self._pool(settings.url)
        self._nowhere = self.pool if self.launched else None
        self._settings = settings
        self.key_line = f"authorization: Bearer {settings.api_key}\r\n".encode("latin-1") if settings.api_key else b""
        self.pass_caller = settings.pass_caller
        passes = settings.pass_authorization and not settings.api_key
        self._withheld = with_authorization(NOT_TO_ENGINE) if passes else NOT_TO_ENGINE
        self._withheld_traced = with_authorization(TRACED_NOT_TO_ENGINE) if passes else TRACED_NOT_TO_ENGINE
        self._fixed: dict[str, bytes] = {}
        self._ahead: dict[str, Pool] = {}

    def is_for(self, settings: BackendSettings) -> bool:
        """Whether requests reach a backend of these ``settings`` in the same way."""
        return all(getattr(settings, key) == getattr(self._settings, key) for key in _REACHING)

    def ahead(self, url: str) -> Pool:
        """Connections to the engine that starts at ``url``, for the gateway alone. ``locate`` has others use them."""
        pool = self._pool(url)
        self._ahead = {url: pool}
        return pool

    def locate(self, url: str) -> None:
        """Send requests to ``url`` from now on; if it is empty, the engine does not run."""
        if self.pool is not self._nowhere:
            self.pool.close()
        self.pool = self._ahead.get(url) or (None if url else self._nowhere) or self._pool(url)
        self._ahead = {}
        self._fixed.clear()

    def _pool(self, url: str) -> Pool:
        return Pool(Origin.parse(url), self.outside, verify_tls=self._verify_tls, most_idle=self._most_idle)

    @property
    def address(self) -> tuple[str, int]:
        """The engine's host and port; the host is empty while it does not run."""
        origin = self.pool.origin
        return origin.host, origin.port

    @property
    def withheld(self) -> frozenset[bytes]:
        """The client's headers that the engine must not see: its credentials, and for whom another gateway asks."""
        return self._withheld & _UNSEEN

    def fixed(self, method: str, path: str, pool: Pool | None = None) -> bytes:
        """The request line and the headers that every request has. ``pool``: as ``ahead`` returned it."""
        origin = (pool or self.pool).origin
        return (
            f"{method} {origin.prefix}{path} HTTP/1.1\r\nhost: {origin.authority}\r\n".encode("latin-1") + self.key_line
        )

    def post(
        self,
        path: str,
        headers: Headers,
        request_id: bytes,
        body: bytes,
        trace_lines: bytes = b"",
        caller_lines: bytes = b"",
    ) -> bytes:
        """A whole ``POST`` on behalf of a client. ``trace_lines``: instead of its own, if there are any.

        ``caller_lines``: tell whose request it is.
        """
        fixed = self._fixed.get(path)
        if fixed is None:
            fixed = self._fixed[path] = self.fixed("POST", path)
        lines = passing_lines(headers, self._withheld_traced if trace_lines else self._withheld)
        head = fixed + lines + trace_lines + caller_lines  # mypyc builds what follows without Python's formatting
        return b"%sx-request-id: %s\r\ncontent-length: %d\r\n\r\n%s" % (head, request_id, len(body), body)

    def head(
        self,
        method: str,
        target: str,
        headers: Headers,
        request_id: bytes,
        framing: bytes,
        caller_lines: bytes,
        *,
        encoded: bool = False,
    ) -> bytes:
        """The head of a request on behalf of a client. ``framing``: the header lines that say where its body ends.

        ``target`` is a path and perhaps a query, as they stand on the wire. ``encoded``: the client gets the answer as
        the engine encodes it.
        """
        withheld = self._withheld - {b"accept-encoding"} if encoded else self._withheld
        lines = passing_lines(headers, withheld) + caller_lines
        return b"%s%sx-request-id: %s\r\n%s\r\n" % (self.fixed(method, target), lines, request_id, framing)

    def handshake(self, headers: Headers, request_id: bytes, caller_lines: bytes) -> Headers:
        """The headers of a WebSocket's handshake on behalf of a client."""
        lines = passing_lines(headers, self._withheld) + caller_lines
        return read_lines(b"%sx-request-id: %s\r\n%s" % (lines, request_id, self.key_line))
