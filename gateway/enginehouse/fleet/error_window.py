"""The share of bad answers of a backend in the last two minutes."""

from __future__ import annotations

from collections import deque
from typing import Final

_CELL_S: Final = 10.0
_CELLS: Final = 12
_FEWEST: Final = 10
"""Fewer answers say nothing of a share."""


class ErrorWindow:
    """Counts good and bad answers in cells of ten seconds.

    The window moves with bad answers and with probes, so that good answers need no clock. Times are in seconds.
    """

    __slots__ = ("_bad", "_cells", "_ends", "good")

    def __init__(self) -> None:
        self.good = self._bad = 0
        self._ends = 0.0
        self._cells: deque[tuple[int, int]] = deque(maxlen=_CELLS)

    def failed(self, now: float) -> float:
        """Count a bad answer at ``now``. Returns the share."""
        self.share(now)
        self._bad += 1
        return self.share(now)

    def share(self, now: float) -> float:
        """The share of bad answers at ``now``, from 0 to 1; 0 while there are fewer than ten answers."""
        if now >= self._ends:
            passed = int(min((now - self._ends) // _CELL_S, _CELLS)) if self._ends else 0
            self._cells.append((self.good, self._bad))
            self._cells.extend([(0, 0)] * passed)
            self.good = self._bad = 0
            self._ends = now + _CELL_S
        bad = self._bad + sum(cell[1] for cell in self._cells)
        answers = bad + self.good + sum(cell[0] for cell in self._cells)
        return bad / answers if answers >= _FEWEST else 0.0
