"""The time without a first byte after which a second replica gets the request too."""

from __future__ import annotations

from collections import deque
from typing import Final

from enginehouse.config.routing import HedgeAfter

_KEPT: Final = 200
_FEWEST: Final = 20
_RENEW_EVERY: Final = 20


class HedgeDelay:
    """A fixed time, or a percentile of a model's last 200 times to the first byte. ``after``: which of them."""

    def __init__(self, after: HedgeAfter) -> None:
        self.after = after
        self._by_model: dict[str, _FirstBytes] = {}

    def of(self, model: str) -> float | None:
        """The delay in seconds; ``None`` while fewer than 20 times are known."""
        if not self.after.percentile:
            return self.after.seconds
        times = self._by_model.get(model)
        return None if times is None else times.percentile(self.after.percentile)

    def observe(self, model: str, seconds: float) -> None:
        """Add an engine's time to its first byte. If another engine won, the real time is longer."""
        if self.after.percentile:
            self._by_model.setdefault(model, _FirstBytes()).add(seconds)


class _FirstBytes:
    """The last times of one model. Their percentile is sought again after every 20 of them."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=_KEPT)
        self._new = 0
        self._found: float | None = None

    def add(self, seconds: float) -> None:
        self._last.append(seconds)
        self._new += 1

    def percentile(self, share: int) -> float | None:
        """The nearest-rank percentile."""
        if len(self._last) >= _FEWEST and (self._found is None or self._new >= _RENEW_EVERY):
            self._new = 0
            self._found = sorted(self._last)[-(-len(self._last) * share // 100) - 1]
        return self._found
