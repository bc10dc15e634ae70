"""Rescheduling policies: decide which live requests move."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from enginehouse.domain.migration import ClusterView, Migration


class ReschedulingPolicy(ABC):
    """Decides which migrations are worthwhile."""

    @abstractmethod
    def plan(self, view: ClusterView) -> Sequence[Migration]:
        """The migrations to carry out now. Must be a pure function of ``view``."""
