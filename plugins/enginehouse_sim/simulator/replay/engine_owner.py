"""The interface of a replay to the engines that it simulates."""

from __future__ import annotations

from enginehouse_sim.simulator.replay.figures.answer import AnswerRecord


class ReplayPlace:
    """A point in the order of a replay's events. Events at the same ``time`` have the order of ``rank``.

    The rank of a step's end is the index of its engine.
    """

    __slots__ = ("rank", "time")

    def __init__(self, time: float, rank: float) -> None:
        self.time = time
        self.rank = rank


class EngineOwner:
    """Follows the engines of a replay and their answers. ``place``: the point that the replay has reached."""

    def __init__(self) -> None:
        self.place = ReplayPlace(0.0, -1.0)

    def first_token(self, answer: AnswerRecord) -> None:
        """The answer has its first token."""

    def ended(self, answer: AnswerRecord) -> None:
        """The answer has its last token."""

    def due_sooner(self, index: int) -> None:
        """The engine number ``index`` is due earlier than it was, because a request came or went."""
