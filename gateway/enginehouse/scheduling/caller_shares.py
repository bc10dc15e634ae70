"""The turns of requests by which callers share engines, whoever sends more."""

from __future__ import annotations

from typing import Final

_FIRST_ANSWER: Final = 256.0
"""The tokens that an answer is assumed to have until some have ended."""
_KEPT: Final = 0.97
"""The weight that the mean answer keeps when another one has ended."""


class CallerShares:
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

    def expected(self, prompt: int, answer_limit: int | None) -> float:
        """The tokens of a request and its answer, as far as one can tell before it is served."""
        return prompt + (self._answer if answer_limit is None else min(self._answer, answer_limit))

    def turn(self, caller: str | None, weight: float, tokens: float) -> float:
        """The turn of the next request of ``caller``, of so many ``tokens``: lower ones first."""
        begins = max(self._now, self._ends.get(caller, 0.0))
        self._ends[caller] = begins + tokens / weight
        self._live += 1
        return begins

    def granted(self, turn: float) -> None:
        """Note that the request with this ``turn`` is served now."""
        self._now = max(self._now, turn)

    def ended(self, caller: str | None, weight: float, expected: float, used: int, prompt: int) -> None:
        """Charge the tokens that a request really ``used``, in place of the ``expected`` ones."""
        self._answer = _KEPT * self._answer + (1 - _KEPT) * max(0, used - prompt)
        if caller in self._ends:
            self._ends[caller] += (used - expected) / weight
        self._live -= 1
        if self._live <= 0 and self._ends:
            self._live = 0
            self._now = max(self._now, *self._ends.values())
            self._ends.clear()
