"""The filter: only some backends work."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from enginehouse import Candidate, Filter, Requirements


class BackendNames(Filter):
    """Keeps the backends whose names match."""

    class Config(msgspec.Struct, frozen=True):
        """``keep`` and ``drop`` are patterns as in a shell; ``drop`` wins."""

        keep: tuple[str, ...] = ("*",)
        drop: tuple[str, ...] = ()

    def __init__(self, config: Config) -> None:
        self._config = config

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The candidates on backends that work."""
        return [candidate for candidate in candidates if self._works(candidate.backend)]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        """Which list sent the backend home."""
        for pattern in self._config.drop:
            if fnmatchcase(candidate.backend, pattern):
                return f"backend '{candidate.backend}' matches '{pattern}' in drop"
        return f"backend '{candidate.backend}' matches nothing in keep"

    def _works(self, backend: str) -> bool:
        kept = any(fnmatchcase(backend, pattern) for pattern in self._config.keep)
        return kept and not any(fnmatchcase(backend, pattern) for pattern in self._config.drop)
