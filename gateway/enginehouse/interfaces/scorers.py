"""Scorers: rate candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements


class Scorer(ABC):
    """Rates all candidates of a request at once."""

    @abstractmethod
    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        """Return one figure for each candidate, in their order, from 0 (worst) to 100 (best). Must be pure.

        Raise a ``RequestError`` to refuse the request. The gateway limits each figure to 0 to 100. Any other exception,
        a wrong number of figures or NaN becomes ``plugin_failed`` (500), which names the scorer.
        """


class WeightedScorer(NamedTuple):
    """A configured scorer: its instance name, its weight and the scorer.

    ``scorer.score`` returns as many figures as candidates, each from 0 to 100: the gateway checks it.
    """

    name: str
    weight: int
    scorer: Scorer
