"""The scorer: some backends are better than others."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from enginehouse import Candidate, Requirements


class BackendPreference:
    """Scores a backend by the first pattern that its name matches."""

    class Config(msgspec.Struct, frozen=True):
        """``prefer``: patterns as in a shell, best first."""

        prefer: tuple[str, ...]

    def __init__(self, config: Config) -> None:
        self._prefer = config.prefer

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        """100 for the first pattern, equal steps down from there, 0 for no match."""
        return [self._score(candidate.backend) for candidate in candidates]

    def _score(self, backend: str) -> float:
        for place, pattern in enumerate(self._prefer):
            if fnmatchcase(backend, pattern):
                return 100 * (1 - place / len(self._prefer))
        return 0
