"""Bounds how much work retries, hedges and continuations add."""

from __future__ import annotations

from collections import deque
from typing import Final

_CELL_S: Final = 1.0
_CELLS: Final = 10
AT_LEAST: Final = 100
"""The number of tries that ten seconds always allow, even without traffic: ten per second, as in Finagle."""


class RetryBudget:
    """Allows a ``share`` of the requests of the last ten seconds to be sent once more, and at least 100.

    It has no clock: times are arguments, in seconds, and never decrease. The window moves in steps of one second.
    Finagle and Linkerd bound retries by such budgets, which keep an overload from feeding itself.
    """

    __slots__ = ("_cells", "_ends", "_requests", "_tries", "share")

    def __init__(self, share: float) -> None:
        self.share = share
        self._requests = self._tries = 0
        self._ends = 0.0
        self._cells: deque[tuple[int, int]] = deque(maxlen=_CELLS)

    def count(self, now: float, requests: int) -> None:
        """Count new requests."""
        if now >= self._ends:
            self._move(now)
        self._requests += requests

    def has_room(self, now: float) -> bool:
        """Whether a request may be sent once more."""
        if now >= self._ends:
            self._move(now)
        requests = self._requests + sum(cell[0] for cell in self._cells)
        tries = self._tries + sum(cell[1] for cell in self._cells)
        return tries < max(AT_LEAST, requests * self.share)

    def take(self, now: float) -> None:
        """Count a request that is sent once more."""
        if now >= self._ends:
            self._move(now)
        self._tries += 1

    def _move(self, now: float) -> None:
        """Begin the second of ``now``."""
        passed = min((now - self._ends) // _CELL_S + 1, _CELLS + 1)
        self._cells.append((self._requests, self._tries))
        self._cells.extend([(0, 0)] * (int(passed) - 1))
        self._requests = self._tries = 0
        self._ends = self._ends + passed * _CELL_S if passed <= _CELLS else now + _CELL_S
