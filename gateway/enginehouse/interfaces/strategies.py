"""Strategies: the candidate that serves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Verdict
from enginehouse.interfaces.scorers import WeightedScorer


class Strategy(ABC):
    """Picks one candidate. May keep state of its own (a rotation, a random source)."""

    def use(self, scorers: Sequence[WeightedScorer]) -> None:
        """Receive the configured scorers, once, at start. A strategy that does not score ignores them."""

    @abstractmethod
    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        """One of ``candidates``, which holds at least one."""

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """What it thinks of each candidate, in their order, changing nothing.

        What it would pick is found out by a ``copy.deepcopy`` of it.
        """
        return [Verdict()] * len(candidates)
