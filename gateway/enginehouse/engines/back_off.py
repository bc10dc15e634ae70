"""How long an engine that fails again and again is left alone."""

from __future__ import annotations

_FIRST_S, _LONGEST_S = 1.0, 60.0
_FORGIVEN_S = 60.0
"""An engine that was ready for this long has shown that it works: what failed before counts no more."""


class BackOff:
    """After each failure in a row twice the pause, from one second to a minute. Times are seconds on any clock.

    The first failure of an engine that had been ready costs no pause: most of them work again once restarted.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._until = 0.0
        self._ready_at: float | None = None

    def ready(self, now: float) -> None:
        """The engine can take requests."""
        self._ready_at = now

    def failed(self, now: float) -> None:
        """The engine did not start, or ended by itself."""
        was_ready = self._ready_at is not None
        if self._ready_at is not None and now - self._ready_at >= _FORGIVEN_S:
            self.failures = 0
        self._ready_at = None
        self.failures += 1
        pause = 0.0 if was_ready and self.failures == 1 else _FIRST_S * 2.0 ** (self.failures - 1)
        self._until = now + min(pause, _LONGEST_S)

    def left(self, now: float) -> float:
        """Seconds until it may be tried again; 0 for now."""
        return max(0.0, self._until - now)
