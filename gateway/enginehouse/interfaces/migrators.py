"""Migrators: move live requests between instances."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from enginehouse.domain.instance import ClusterView, InstanceAddress, Migrated, Migration, RequestView
from enginehouse.interfaces.drivers import EngineClient


class MigrationMeans(Protocol):
    """A migrator's access to the gateway. Methods raise ``NotFound`` for an unknown instance or request."""

    def live(self, instance: str) -> Sequence[RequestView]:
        """The live requests of an instance, oldest first."""

    async def move(self, request: str, destination: str) -> None:
        """Continue a live stream on another instance, whatever its engine. Raises a ``RequestError`` if it stays."""

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        """Read the rest of a stream from ``destination``, to which engines have moved the request themselves.

        ``engine_request`` is the request's id at the engines. Afterwards the stream does not depend on the source.
        Raises a ``RequestError`` if the stream still comes from the source, for example because the destination's
        engine does not offer the rest.
        """

    def moved_by_engine(self, request: str, destination: str) -> None:
        """Count a request at ``destination`` from now on, because engines have moved it and ``join`` has failed."""

    def engine(self, instance: str) -> EngineClient:
        """An HTTP client for the instance's engine."""

    def address(self, instance: str) -> InstanceAddress:
        """The address and ports at which the instance takes commands and requests of other instances."""

    def kv_tokens(self, instance: str) -> int:
        """The size of the instance's KV cache in tokens, for ``RATIO``; 0 if it is not known."""


class Migrator(ABC):
    """Carries out migrations. For each migration, the gateway uses the first configured migrator that can."""

    def prepare(self, means: MigrationMeans) -> None:
        """Called once, before anything else."""

    @abstractmethod
    def why_not(self, migration: Migration, view: ClusterView) -> str:
        """Return the reason why this migrator cannot move requests between the two instances; empty if it can."""

    @abstractmethod
    async def migrate(self, migration: Migration) -> Migrated:
        """Move the requests. The gateway cancels this call after ``rescheduling.migrate_timeout``.

        ``Migrated.refused`` names the requests that stay. Raise any exception if the migration could not begin.
        """
