"""Decides when a new projection is worth its cost."""

from __future__ import annotations

from enginehouse_sim.simulator.domain.request import RequestState
from enginehouse_sim.simulator.offload.settings import OffloadSettings
from enginehouse_sim.simulator.scheduler.state import SchedulerState

_UNSAFE_FOR = 4
"""Steps until an unsafe request is projected again, unless a running one finishes first."""


class LastProjection:
    """Remembers the last projection.

    The worst case of the running requests gets worse only if others join.
    """

    def __init__(self, state: SchedulerState, settings: OffloadSettings) -> None:
        self._state = state
        self._settings = settings
        self._calm_until = 0
        self._seen: set[str] = set()
        self._refused: tuple[str, int, int] = ("", 0, 0)

    def is_current(self) -> bool:
        """Whether starvation cannot have come near since the last projection."""
        if self._state.next_step >= self._calm_until:
            return False
        return self._seen.issuperset([request.request_id for request in self._state.running])

    def record(self, starvation: int | None) -> None:
        """Remember in how many passes the blocks run out; ``None``: not within ``safe_for`` passes."""
        passes = self._settings.safe_for if starvation is None else starvation
        self._calm_until = self._state.next_step + passes - self._settings.starvation_within
        self._seen = {request.request_id for request in self._state.running}

    def record_unsafe(self, request: RequestState) -> None:
        """Remember that admitting the request would not be safe."""
        self._refused = (request.request_id, len(self._state.running), self._state.next_step + _UNSAFE_FOR)

    def is_known_unsafe(self, request: RequestState) -> bool:
        """Whether the request was unsafe a few steps ago, and nothing has changed since."""
        name, num_running, until = self._refused
        return name == request.request_id and num_running == len(self._state.running) and self._state.next_step < until
