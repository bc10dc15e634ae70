"""When it is worth looking ahead again."""

from __future__ import annotations

from enginehouse_sim.offload.settings import OffloadSettings
from enginehouse_sim.scheduler.request import RequestState
from enginehouse_sim.scheduler.state import SchedulerState

_REFUSED_FOR = 4
"""Steps until a request that would not have been safe is looked at again, if nobody left meanwhile."""


class Watch:
    """Remembers what was seen. The worst case of requests that run gets no worse by itself, only if others join."""

    def __init__(self, state: SchedulerState, settings: OffloadSettings) -> None:
        self._state = state
        self._settings = settings
        self._calm_until = 0
        self._seen: set[str] = set()
        self._refused: tuple[str, int, int] = ("", 0, 0)

    def is_calm(self) -> bool:
        """Whether nothing can have come near since the last look."""
        if self._state.next_step >= self._calm_until:
            return False
        return self._seen.issuperset([request.request_id for request in self._state.running])

    def saw(self, starvation: int | None) -> None:
        """The blocks run out in so many passes; ``None``: not within ``safe_for``."""
        passes = self._settings.safe_for if starvation is None else starvation
        self._calm_until = self._state.next_step + passes - self._settings.starvation_within
        self._seen = {request.request_id for request in self._state.running}

    def refused(self, request: RequestState) -> None:
        """It would not be safe to admit the request."""
        self._refused = (request.request_id, len(self._state.running), self._state.next_step + _REFUSED_FOR)

    def was_refused(self, request: RequestState) -> bool:
        """Whether that is known still to be so, or as good as known."""
        name, num_running, until = self._refused
        return name == request.request_id and num_running == len(self._state.running) and self._state.next_step < until
