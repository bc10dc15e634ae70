"""Calls every open connection once a second."""

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
        for check in list(self._checks):
            check(now)
        self._timer = loop.call_later(1, self._sweep, loop) if self._checks else None
