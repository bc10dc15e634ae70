"""The interface of a replay to the engines that it simulates."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from enginehouse_sim.simulator.replay.figures.record import RequestRecord

if TYPE_CHECKING:
    from enginehouse_sim.simulator.replay.played_engine import PlayedEngine


class ReplayPlace(NamedTuple):
    """A point in the order of a replay's events. Events at the same ``time`` have the order of ``rank``.

    The rank of a step's end is the index of its engine.
    """

    time: float
    rank: float


class EngineOwner:
    """Follows the engines of a replay and their requests. ``place``: the point that the replay has reached."""

    place = ReplayPlace(0.0, -1)

    def first_token(self, request: RequestRecord) -> None:
        """The request has its first token."""

    def ended(self, request: RequestRecord) -> None:
        """The request has its last token."""

    def due_sooner(self, engine: PlayedEngine) -> None:
        """The engine is ``due`` earlier than it was, because a request came or went."""
