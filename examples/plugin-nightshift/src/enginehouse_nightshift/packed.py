"""The strategy: fill one backend before using the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from enginehouse import Candidate, Requirements, Strategy, Verdict


class Packed(Strategy):
    """Picks the busiest backend that is below its limit, or the least busy one if none is."""

    class Config(msgspec.Struct, frozen=True):
        """``limit``: requests at once that a backend gets before the next one is used."""

        limit: Annotated[int, msgspec.Meta(ge=1)] = 8

    def __init__(self, config: Config) -> None:
        self._limit = config.limit

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        """The first of the best."""
        return max(candidates, key=self._rank)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Each candidate's rank as its score."""
        return [Verdict(self._rank(each), {"pending": each.load.pending, "limit": self._limit}) for each in candidates]

    def _rank(self, candidate: Candidate) -> float:
        """The more requests the better, up to the limit; from there on the fewer."""
        pending = candidate.load.pending
        return pending if pending < self._limit else -pending
