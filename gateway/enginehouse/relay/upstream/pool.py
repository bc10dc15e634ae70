"""The connections to one engine."""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable
from typing import Final, cast

from enginehouse.aio.clock import loop_clock
from enginehouse.aio.write_batch import WriteBatch
from enginehouse.domain.errors import UpstreamError
from enginehouse.relay.upstream.connection import Connection
from enginehouse.relay.upstream.origin import Origin
from enginehouse.relay.upstream.outside import Outside

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

    _loop_time: Callable[[], float]
    """Set with ``_loop``."""

    def __init__(
        self, origin: Origin, outside: Outside, *, verify_tls: bool = True, most_idle: int | None = None
    ) -> None:
        self.origin = origin
        self._outside = outside
        self._now = outside.clock.now
        self.address = origin.url
        self._most_idle = sys.maxsize if most_idle is None else most_idle
        self._idle: list[Connection] = []
        self._writes = WriteBatch()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._slow = False
        self._closed = False
        self.tls = _tls_context(verify_tls) if origin.tls else None

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
            self._loop_time = loop_clock(loop)
        connection.kept_at = self._loop_time()
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
        idle, now = self._idle, self._loop_time()
        while idle and now - idle[0].kept_at >= (_UNUSED_S if len(idle) <= self._most_idle else _GRACE_S):
            idle.pop(0).close()
        if idle:
            self._sweep_later(loop)


def _tls_context(verify: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
