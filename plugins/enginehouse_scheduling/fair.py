"""The scheduler ``fair``, and the turns by which callers share engines."""

from __future__ import annotations

from typing import ClassVar, Final

from enginehouse.tickets import CallerTurn, CallerTurns
from enginehouse_scheduling.fifo import Fifo

_FIRST_ANSWER: Final = 256.0
"""The tokens that an answer is assumed to have until some have ended."""
_KEPT: Final = 0.97
"""The weight that the mean answer keeps when another one has ended."""
_MOST_CALLERS: Final = 10_000
"""With more, the debt of the one that has asked for nothing for the longest time is forgotten."""


class FairTurns(CallerTurns):
    """Start-time fair queueing, with tokens in place of bytes.

    Each request begins, in virtual time, where the one before of its caller ended, but not before those that are being
    granted; it takes its tokens divided by the caller's weight. Requests are served in the order of their beginnings.
    So callers get tokens in proportion to their weights while they wait, and none saves up turns while it is idle. When
    all have ended, nobody owes anything: virtual time goes on to the last end.
    Goyal, Vin, Cheng: "Start-time Fair Queueing" (1996); virtual token counters give the same bounds to the callers of
    an engine: Sheng et al., "Fairness in Serving Large Language Models" (2024).
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._ends: dict[str | None, float] = {}
        self._answer = _FIRST_ANSWER
        self._live = 0

    def next(self, caller: str | None, weight: float, prompt: int, answer_limit: int | None) -> FairTurn:
        expected = prompt + (self._answer if answer_limit is None else min(self._answer, answer_limit))
        begins = max(self._now, self._ends.pop(caller, 0.0))
        self._ends[caller] = begins + expected / weight
        if len(self._ends) > _MOST_CALLERS:
            del self._ends[next(iter(self._ends))]
        self._live += 1
        return FairTurn(self, begins, caller, weight, prompt, expected)

    def granted(self, at: float) -> None:
        """Note that a request is served whose turn is ``at``."""
        self._now = max(self._now, at)

    def ended(self, turn: FairTurn, used: int) -> None:
        """Charge the tokens that a request really ``used``, in place of the expected ones: none if it was refused."""
        if turn.was_served or used > turn.prompt:
            self._answer = _KEPT * self._answer + (1 - _KEPT) * max(0, used - turn.prompt)
        else:
            used = 0
        if turn.caller in self._ends:
            self._ends[turn.caller] += (used - turn.expected) / turn.weight
        self._live -= 1
        if self._live <= 0 and self._ends:
            self._live = 0
            self._now = max(self._now, *self._ends.values())
            self._ends.clear()


class FairTurn(CallerTurn):
    """A turn of ``FairTurns``. ``expected``: the tokens of the request and its answer that were charged at first."""

    __slots__ = ("_turns", "at", "caller", "expected", "prompt", "was_served", "weight")

    def __init__(
        self, turns: FairTurns, at: float, caller: str | None, weight: float, prompt: int, expected: float
    ) -> None:
        self._turns = turns
        self.at = at
        self.caller = caller
        self.weight = weight
        self.prompt = prompt
        self.expected = expected
        self.was_served = False

    def granted(self) -> None:
        self.was_served = True
        self._turns.granted(self.at)

    def ended(self, used: int) -> None:
        self._turns.ended(self, used)


class Fair(Fifo):
    """As ``fifo``, but requests of the same priority take turns by callers, in proportion to their keys' ``weight``.

    A caller's turn comes the later the more tokens its requests have used. Turns are given on arrival and shared by all
    hosts and models. Requests without a key are one caller.
    """

    shares: ClassVar[type[CallerTurns] | None] = FairTurns
