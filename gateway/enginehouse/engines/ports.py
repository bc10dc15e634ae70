"""Loopback ports for engines."""

from __future__ import annotations

import random
import socket

from enginehouse.domain.errors import LoadFailed

LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 20_000, 32_767
"""Below the range of ephemeral ports, since an outgoing connection could take such a port before the engine does."""


class Ports:
    """Hands out free loopback ports in turn, so that a port just given back is not used again at once."""

    def __init__(self, first: int = _FIRST, last: int = _LAST) -> None:
        self._range = range(first, last + 1)
        self._next = random.randrange(len(self._range))
        self._taken: set[int] = set()

    def take(self) -> int:
        """Return a free port that was not handed out. Raises ``LoadFailed`` if there is none."""
        for _ in self._range:
            port = self._range[self._next]
            self._next = (self._next + 1) % len(self._range)
            if port not in self._taken and _is_free(port):
                self._taken.add(port)
                return port
        raise LoadFailed(f"No free port between {self._range[0]} and {self._range[-1]} for another engine")

    def claim(self, port: int) -> None:
        """Mark ``port`` as taken by an engine that already runs."""
        self._taken.add(port)

    def give_back(self, port: int) -> None:
        """Allow ``port`` to be handed out again."""
        self._taken.discard(port)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
