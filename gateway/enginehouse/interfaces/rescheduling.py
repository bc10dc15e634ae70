"""Rescheduling policies: which live requests should move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from enginehouse.domain.migration import ClusterView, Migration


class ReschedulingPolicy(Protocol):
    """From a view of the cluster to the migrations worth making."""

    def plan(self, view: ClusterView) -> Sequence[Migration]:
        """The migrations this policy wants now. Pure."""
