"""The scorer ``backend_preference``."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from enginehouse import Candidate, Requirements, Scorer


class BackendPreferenceScorer(Scorer):
    """Scores a candidate by the first pattern that the name of its backend matches."""

    class Config(msgspec.Struct, frozen=True):
        """``prefer`` are patterns as in a shell, best first."""

        prefer: tuple[str, ...]

    def __init__(self, config: Config) -> None:
        self._prefer = config.prefer

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        """100 for the first pattern, less by equal steps for each later one, 0 for no match."""
        return [self._score(candidate.backend) for candidate in candidates]

    def _score(self, backend: str) -> float:
        for place, pattern in enumerate(self._prefer):
            if fnmatchcase(backend, pattern):
                return 100 * (1 - place / len(self._prefer))
        return 0
