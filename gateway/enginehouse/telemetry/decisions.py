"""The last routing decisions, for ``GET /api/decisions``."""

from __future__ import annotations

from collections import deque
from time import time
from typing import Any

from enginehouse.domain.errors import RequestError
from enginehouse.domain.route import Route


class Decisions:
    """A ring of the last decisions; a decision is kept as it is and told only when somebody asks."""

    def __init__(self, most: int = 1000) -> None:
        self._ring: deque[tuple[float, bytes, str, Route | RequestError]] = deque(maxlen=most)

    def record(self, request_id: bytes, requested: str, decision: Route | RequestError) -> None:
        """Remember what was decided for a request."""
        self._ring.append((time(), request_id, requested, decision))

    def last(self, most: int) -> list[dict[str, Any]]:
        """The last decisions, newest first."""
        newest = list(self._ring)[-most:] if most > 0 else []
        return [_told(*entry) for entry in reversed(newest)]


def _told(at: float, request_id: bytes, requested: str, decision: Route | RequestError) -> dict[str, Any]:
    told: dict[str, Any] = {"time": at, "request_id": request_id.decode(), "requested": requested}
    if isinstance(decision, Route):
        return told | {
            "resolved": decision.model,
            "reason": decision.reason.value,
            "attempted": list(decision.attempted),
            "chosen": decision.chosen.replica,
            "error": None,
        }
    error = decision.envelope()["error"]
    attempted = error["details"].get("attempted", [requested])
    return told | {"resolved": None, "reason": None, "attempted": attempted, "chosen": None, "error": error}
