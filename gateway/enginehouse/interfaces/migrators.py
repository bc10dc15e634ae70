"""Migrators: move live requests between instances."""

from __future__ import annotations

from abc import ABC, abstractmethod

from enginehouse.domain.migration import ClusterView, Migration


class Migrator(ABC):
    """Carries out migrations. The gateway uses the first configured migrator that can."""

    @abstractmethod
    def can(self, migration: Migration, view: ClusterView) -> bool:
        """Whether this migrator can move requests between the two instances."""

    @abstractmethod
    async def migrate(self, migration: Migration) -> int:
        """Move the requests and return how many were moved. Cancelled after ``rescheduling.migrate_timeout``."""
