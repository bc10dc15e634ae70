"""Filters: which candidates may serve a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements


class Filter(ABC):
    """Narrows the candidates. Gets all of them at once, keeps their order, adds none, changes none."""

    @abstractmethod
    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The candidates that may serve the request."""

    @abstractmethod
    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        """Why ``candidate`` was dropped, for people. Asked only when explaining."""

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        """The capabilities that ``candidate`` lacks. Asked only when nothing is left.

        If any filter names one, the client is told ``capability_mismatch`` (400), else ``no_healthy_backend`` (503).
        """
        return ()
