"""Time limits of a connection: for the reading of answers, for silence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

Check = Callable[[float], None]
"""Called with the loop's time, in seconds."""


class IdleSweep:
    """Lets connections find out that their clients have been silent for too long.

    One timer for all connections is cheaper than one for every answer.
    """

    def __init__(self) -> None:
        self._checks: dict[Check, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, check: Check, loop: asyncio.AbstractEventLoop) -> None:
        """Call ``check`` every second from now on."""
        self._checks[check] = None
        if self._timer is None:
            self._timer = loop.call_later(1, self._sweep, loop)

    def discard(self, check: Check) -> None:
        """Stop calling ``check``."""
        self._checks.pop(check, None)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for check in list(self._checks):  # one that closes its connection discards itself
            check(now)
        self._timer = loop.call_later(1, self._sweep, loop) if self._checks else None


class SlowReader:
    """Watches the number of bytes of answers that a client has not taken yet."""

    __slots__ = ("_since", "_unread")

    def __init__(self) -> None:
        self._unread = 0
        self._since = 0.0

    def has_stalled(self, unread: int, now: float, limit: float) -> bool:
        """Whether the client has taken no byte for more than ``limit`` seconds; 0 means no limit."""
        if not unread or unread != self._unread:
            self._unread, self._since = unread, now
            return False
        return limit > 0 and now - self._since > limit
