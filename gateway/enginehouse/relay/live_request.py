"""A request that is under way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from enginehouse.domain.errors import RequestError
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.relay.reply import Reply
from enginehouse.telemetry.record import AttemptRecord


class LiveRequest(Protocol):
    """An exchange or a WebSocket, as operators, the watchdog and the counters see it."""

    @property
    def path(self) -> str:
        """The path that the client asked for."""

    @property
    def request_id(self) -> bytes:
        """The value of ``x-request-id``. Clients choose it, so two live requests may have the same."""

    @property
    def phase(self) -> Phase:
        """How far the request is."""

    @property
    def requirements(self) -> Requirements | None:
        """What the request needs; ``None`` until it is whole."""

    @property
    def began(self) -> float:
        """When the request was whole, in ``perf_counter`` seconds."""

    @property
    def route(self) -> Route | None:
        """The route of the current attempt."""

    @property
    def attempts(self) -> Sequence[AttemptRecord]:
        """The attempts that have ended, in order."""

    @property
    def ticket(self) -> Ticket | None:
        """The ticket of the current attempt, where the gateway launches the engine."""

    @property
    def waiting_reply(self) -> Reply | None:
        """The reply of a stream that waits for its first byte; a progress report may begin it."""

    @property
    def moves(self) -> int:
        """How often it was moved to another backend."""

    @property
    def output_tokens(self) -> int | None:
        """How many tokens a stream's answer has so far; ``None`` if that is unknown."""

    @property
    def stays(self) -> str | None:
        """Why it cannot be moved to another backend; ``None`` if it can."""

    def cancel(self, error: RequestError | None = None) -> None:
        """End the request now, with ``error`` or else as cancelled by an operator."""

    def check_time(self, now: float) -> None:
        """Act on a time limit that has passed at ``now``, in ``perf_counter`` seconds."""
