"""A request that is under way."""

from __future__ import annotations

from typing import Protocol

from enginehouse.domain.errors import RequestError
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Phase, Ticket


class LiveRequest(Protocol):
    """What operators and the watchdog see of a request, whatever carries it. ``began``: ``perf_counter`` seconds."""

    path: str
    request_id: bytes
    phase: Phase
    requirements: Requirements | None
    began: float

    @property
    def route(self) -> Route | None:
        """Where the request went last."""

    @property
    def ticket(self) -> Ticket | None:
        """What it waits with, or is being served for, at the host of an engine that the gateway launches."""

    def cancel(self, error: RequestError | None = None) -> None:
        """End the request here and now."""

    def check_time(self, now: float) -> None:
        """Act on a time limit that has passed."""
