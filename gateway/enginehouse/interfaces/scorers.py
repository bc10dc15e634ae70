"""Scorers: how good each candidate is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements


class Scorer(Protocol):
    """One figure for each candidate, all candidates at once."""

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        """As many figures as candidates, in their order, from 0 (worst) to 100 (best)."""


class WeightedScorer(NamedTuple):
    """A configured scorer: its instance name, its weight, and itself."""

    name: str
    weight: int
    scorer: Scorer
