"""Migrators: carrying one migration out."""

from __future__ import annotations

from typing import Protocol

from enginehouse.domain.migration import ClusterView, Migration


class Migrator(Protocol):
    """Moves live requests between two instances. The first configured migrator that can is used."""

    def can(self, migration: Migration, view: ClusterView) -> bool:
        """Whether this migrator can move requests between these two instances."""

    async def migrate(self, migration: Migration) -> int:
        """Move the requests and return how many went. Cancelled when ``rescheduling.migrate_timeout`` has passed."""
