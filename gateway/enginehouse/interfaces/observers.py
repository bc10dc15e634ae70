"""Observers: told what happened, never asked."""

from __future__ import annotations

from enginehouse.domain.migration import Migration
from enginehouse.domain.replica import Health, ReplicaState
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import SwapDone


class Observer:
    """Override what you want to hear of; an event without a listener costs nothing.

    Must return at once. An exception is logged and goes no further.
    """

    def routed(self, request_id: str, requirements: Requirements, route: Route) -> None:
        """A request was routed; one that is retried is so again."""

    def swap_started(self, target: str, evict: tuple[str, ...]) -> None:
        """A swap began."""

    def swap_done(self, done: SwapDone) -> None:
        """A swap ended."""

    def replica_state(self, replica: str, state: ReplicaState) -> None:
        """A replica changed its state."""

    def backend_health(self, backend: str, health: Health) -> None:
        """A backend changed its health."""

    def migrated(self, migration: Migration, moved: int) -> None:
        """A migration ended, having moved that many requests."""

    def finished(self, request_id: str, replica: str, status: int, duration_ms: float) -> None:
        """A request's response ended, with the status its client saw; ``replica`` is empty if it had no route."""
