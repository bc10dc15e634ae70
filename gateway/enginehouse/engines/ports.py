"""The ports of this machine, for engines that their launchers do not place."""

from __future__ import annotations

import random
import socket

from enginehouse.domain.errors import LoadFailed
from enginehouse.interfaces.places import LOOPBACK

FIRST, LAST = 20_000, 32_767
"""Below the range of ephemeral ports, since an outgoing connection could take such a port before the engine does."""


class Ports:
    """Hands out free loopback ports in turn, so that a port just given back is not used again at once."""

    def __init__(self, first: int = FIRST, last: int = LAST, taken: set[int] | None = None) -> None:
        self._taken: set[int] = set() if taken is None else taken
        self.limit_to(first, last)

    @property
    def limits(self) -> tuple[int, int]:
        """The first and the last port."""
        return self._range[0], self._range[-1]

    def within(self, first: int, last: int) -> Ports:
        """Other ports of this machine, of which none is handed out while it is taken here."""
        return Ports(first, last, self._taken)

    def limit_to(self, first: int, last: int) -> None:
        """Hand out these ports from now on."""
        self._range = range(first, last + 1)
        # at random, because other gateways on this machine may begin at the same time
        self._next = random.randrange(len(self._range))

    def take(self) -> int:
        """Return a free port that was not handed out. Raises ``LoadFailed`` if there is none."""
        for _ in self._range:
            port = self._range[self._next]
            self._next = (self._next + 1) % len(self._range)
            if port not in self._taken and _is_free(port):
                self._taken.add(port)
                return port
        first, last = self.limits
        raise LoadFailed(f"No free port between {first} and {last} for another engine: widen hosts.*.ports")

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
