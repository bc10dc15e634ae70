"""Loopback ports for engines."""

from __future__ import annotations

import random
import socket

from enginehouse.domain.errors import LoadFailed

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 20_000, 32_767
"""Below what systems hand out for outgoing connections: one of those could take the port before the engine does."""


class Ports:
    """Hands out free loopback ports, one after the other, so that a port just given back rests for a while."""

    def __init__(self, first: int = _FIRST, last: int = _LAST) -> None:
        self._range = range(first, last + 1)
        self._next = random.randrange(len(self._range))
        self._taken: set[int] = set()

    def take(self) -> int:
        """A port that nobody listens on and that was not handed out. Raises ``LoadFailed`` when there is none."""
        for _ in self._range:
            port = self._range[self._next]
            self._next = (self._next + 1) % len(self._range)
            if port not in self._taken and _is_free(port):
                self._taken.add(port)
                return port
        raise LoadFailed(f"No free port between {self._range[0]} and {self._range[-1]} for another engine")

    def claim(self, port: int) -> None:
        """Do not hand out ``port``: an engine is there already."""
        self._taken.add(port)

    def give_back(self, port: int) -> None:
        """Let ``port`` be handed out again."""
        self._taken.discard(port)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
