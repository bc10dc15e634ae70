"""Random numbers that stay until a request has been placed with them."""

from __future__ import annotations

import random


class Draws:
    """Three numbers from 0 to 1, without 1, so that picks in between are the same. ``seed``: makes all repeatable."""

    def __init__(self, seed: int | None) -> None:
        self._random = random.Random(seed)
        self.renew()

    def renew(self) -> None:
        """Draw the next numbers."""
        draw = self._random.random
        self.first, self.second, self.third = draw(), draw(), draw()
