"""The filter ``backend_names``."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from enginehouse import Candidate, Filter, Requirements


class BackendNamesFilter(Filter):
    """Keeps candidates on backends whose names match."""

    class Config(msgspec.Struct, frozen=True):
        """Patterns as in a shell. A backend must match one of ``keep`` and none of ``drop``."""

        keep: tuple[str, ...] = ("*",)
        drop: tuple[str, ...] = ()

    def __init__(self, config: Config) -> None:
        self._config = config

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [candidate for candidate in candidates if self._matches(candidate.backend)]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        for pattern in self._config.drop:
            if fnmatchcase(candidate.backend, pattern):
                return f"backend '{candidate.backend}' matches '{pattern}' in drop"
        return f"backend '{candidate.backend}' matches nothing in keep"

    def _matches(self, backend: str) -> bool:
        kept = any(fnmatchcase(backend, pattern) for pattern in self._config.keep)
        return kept and not any(fnmatchcase(backend, pattern) for pattern in self._config.drop)
