"""Remembers recent moves: instances rest, requests do not return, and no stream moves too often."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from enginehouse.rescheduling import Migrated, Migration, RequestView

_MOST = 10
_WITHIN_S = 60.0
_STAYS = f"it has moved {_MOST} times within a minute"


class RecentMoves:
    """The moves of the last ``cool_down`` seconds. Times are in milliseconds."""

    def __init__(self, cool_down: float) -> None:
        self._cool_down_ms = cool_down * 1000
        self._instances: dict[str, int] = {}
        self._left: dict[str, tuple[str, int]] = {}

    def note(self, migration: Migration, migrated: Migrated, now_ms: int) -> None:
        """Remember a migration that ended at ``now_ms``. One that moved nothing begins no pause."""
        if not migrated.moved or not self._cool_down_ms:
            return
        self._forget(now_ms)
        self._instances[migration.source] = self._instances[migration.destination] = now_ms
        for request in migrated.moved:
            self._left[request] = (migration.source, now_ms)

    def rests(self, instance: str, now_ms: int) -> bool:
        """Whether the instance sent or received requests in the last ``cool_down`` seconds."""
        return self._is_recent(self._instances.get(instance), now_ms)

    def returns(self, request: str, destination: str, now_ms: int) -> bool:
        """Whether the request has just left ``destination``."""
        source, when = self._left.get(request, ("", None))
        return source == destination and self._is_recent(when, now_ms)

    def _is_recent(self, when: int | None, now_ms: int) -> bool:
        return when is not None and now_ms - when < self._cool_down_ms

    def _forget(self, now_ms: int) -> None:
        self._instances = {name: when for name, when in self._instances.items() if self._is_recent(when, now_ms)}
        self._left = {name: left for name, left in self._left.items() if self._is_recent(left[1], now_ms)}


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
