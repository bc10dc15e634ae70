"""The interface of a replay to the engines that it simulates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from enginehouse_sim.simulator.replay.figures.record import RequestRecord

if TYPE_CHECKING:
    from enginehouse_sim.simulator.replay.played_engine import PlayedEngine


class ReplayPlace(NamedTuple):
    """A place in the order of a replay's events: ``rank`` is the index of an engine, among those at this time."""

    time: float
    rank: float


class EngineOwner:
    """Hears of requests and engines. ``place``: how far the replay is."""

    place = ReplayPlace(0.0, -1)

    def first_token(self, request: RequestRecord) -> None:
        """The request's first token is there."""

    def ended(self, request: RequestRecord) -> None:
        """The request's last token is there."""

    def due_sooner(self, engine: PlayedEngine) -> None:
        """The engine is ``due`` earlier than it was, because a request came or went."""
