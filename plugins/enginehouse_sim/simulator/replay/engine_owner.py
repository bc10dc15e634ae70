"""The interface of a replay to the engines that it simulates."""

from __future__ import annotations

import msgspec

from enginehouse_sim.simulator.replay.figures.answer import AnswerRecord


class ReplayPlace(msgspec.Struct, frozen=True, gc=False):
    """A point in the order of a replay's events. Events at the same ``time`` have the order of ``rank``.

    The rank of a step's end is the index of its engine.
    """

    time: float
    rank: float


class EngineOwner:
    """Follows the engines of a replay and their answers. ``place``: the point that the replay has reached."""

    place = ReplayPlace(0.0, -1)

    def first_token(self, answer: AnswerRecord) -> None:
        """The answer has its first token."""

    def ended(self, answer: AnswerRecord) -> None:
        """The answer has its last token."""

    def due_sooner(self, index: int) -> None:
        """The engine number ``index`` is due earlier than it was, because a request came or went."""
