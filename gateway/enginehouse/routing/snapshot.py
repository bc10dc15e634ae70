"""The part of the fleet's snapshot that routing reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from enginehouse.domain.replica import Candidate


class RoutingSnapshot(Protocol):
    """The candidates of every model, frozen at one moment."""

    @property
    def unlisted(self) -> Sequence[str]:
        """The backends whose models are not known yet."""

    def candidates(self, model: str) -> Sequence[Candidate]:
        """The replicas that serve ``model``, healthy or not; empty for an unknown model."""


class OneBackend:
    """The part of a snapshot that is at one ``backend``."""

    def __init__(self, snapshot: RoutingSnapshot, backend: str) -> None:
        self.unlisted: Sequence[str] = ()
        self._snapshot = snapshot
        self._backend = backend

    def candidates(self, model: str) -> Sequence[Candidate]:
        return [each for each in self._snapshot.candidates(model) if each.backend == self._backend]
