"""The strategy ``packed``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from enginehouse import Candidate, Requirements, Strategy
from enginehouse.routing_facts import Verdict


class PackedStrategy(Strategy):
    """Picks the busiest backend below the limit, or the least busy one if all have reached the limit."""

    class Config(msgspec.Struct, frozen=True):
        """``limit`` is the number of concurrent requests at which the next backend is used."""

        limit: Annotated[int, msgspec.Meta(ge=1)] = 8

    def __init__(self, config: Config) -> None:
        self._limit = config.limit

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        return max(candidates, key=self._rank)

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        return [Verdict(self._rank(each), {"pending": each.load.pending, "limit": self._limit}) for each in candidates]

    def _rank(self, candidate: Candidate) -> float:
        """The number of pending requests below the limit; its negative from there on."""
        pending = candidate.load.pending
        return pending if pending < self._limit else -pending
