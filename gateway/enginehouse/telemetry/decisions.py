"""The last routing decisions, for ``GET /api/decisions``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

from enginehouse.domain.errors import RequestError, shortened
from enginehouse.domain.replica import Route
from enginehouse.domain.requirements import Requirements
from enginehouse.telemetry.observers import Observers, notify

MOST = 1000
"""The number of decisions that are stored."""


_Decision = tuple[bytes, "str | None", str, "Route | dict[str, Any]"]
"""The id of a request, its caller, the model that it asked for, and its route or error."""


class Decisions:
    """The last decisions; observers learn of each. Routes are formatted only on request.

    ``epoch`` tells the time of day in seconds.

    An error is stored as its envelope. The exception itself would keep its traceback, and with it the request's body.
    """

    def __init__(self, epoch: Callable[[], float], observers: Observers, most: int = MOST) -> None:
        self._epoch = epoch
        self._on_routed = observers.callbacks("routed")
        self._ring: deque[tuple[float, _Decision | dict[str, Any]]] = deque(maxlen=most)

    def routed(self, request_id: bytes, requirements: Requirements, route: Route) -> None:
        """Store where a request is sent."""
        self._ring.append((self._epoch(), (request_id, requirements.caller, route.requested, route)))
        if self._on_routed:
            notify(self._on_routed, request_id.decode(), requirements, route)

    def refused(self, request_id: bytes, caller: str | None, requested: str, error: RequestError) -> None:
        """Store the error that refused a request for the model ``requested``."""
        refused = request_id, caller, shortened(requested), error.envelope()["error"]
        self._ring.append((self._epoch(), refused))

    def last(self, most: int) -> list[dict[str, Any]]:
        """At most ``most`` decisions, newest first, as ``GET /api/decisions`` shows them."""
        newest = list(self._ring)[-most:] if most > 0 else []
        return [each if isinstance(each, dict) else _as_data(at, *each) for at, each in newest[::-1]]

    def tell(self, decisions: Sequence[dict[str, Any]]) -> None:
        """Add decisions of another process, as ``last`` returned them there."""
        told = [(each["time"], each) for each in decisions]
        self._ring = deque(sorted([*self._ring, *told], key=itemgetter(0)), self._ring.maxlen)

    def drain(self) -> list[dict[str, Any]]:
        """Remove and return all decisions, newest first."""
        found = self.last(MOST)
        self._ring.clear()
        return found


def _as_data(
    at: float, request_id: bytes, caller: str | None, requested: str, decision: Route | dict[str, Any]
) -> dict[str, Any]:
    data: dict[str, Any] = {"time": at, "request_id": request_id.decode(), "caller": caller}
    data["requested"] = shortened(requested)
    if isinstance(decision, Route):
        return data | {
            "resolved": decision.model,
            "reason": decision.reason.value,
            "attempted": list(decision.attempted),
            "chosen": decision.chosen.replica,
            **({"prefill": decision.prefill.replica} if decision.prefill is not None else {}),
            "error": None,
        }
    attempted = decision["details"].get("attempted", [requested])
    return data | {"resolved": None, "reason": None, "attempted": attempted, "chosen": None, "error": decision}
