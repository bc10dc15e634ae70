"""Bounds how often rescheduling moves one stream."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from enginehouse.domain.instance import RequestView

_MOST = 10
_WITHIN_S = 60.0
_STAYS = f"it has moved {_MOST} times within a minute"


class MoveLimit:
    """Lets a stream move ``_MOST`` times within ``_WITHIN_S``: each move costs its client a gap.

    ``now``: a clock in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._moves: dict[str, list[float]] = {}
        self._forgets_at = 0.0

    def note(self, request: str) -> None:
        """Note that a stream has moved."""
        now = self._now()
        if now >= self._forgets_at:
            self._forgets_at = now + _WITHIN_S
            self._moves = {name: times for name, times in self._moves.items() if times[-1] > now - _WITHIN_S}
        self._moves[request] = [*self._moves.get(request, [])[1 - _MOST :], now]

    def seen(self, request: RequestView) -> RequestView:
        """``request``, which stays if it has moved often enough."""
        times = self._moves.get(request.id, [])
        if request.stays is not None or len(times) < _MOST or times[0] <= self._now() - _WITHIN_S:
            return request
        return msgspec.structs.replace(request, stays=_STAYS)
