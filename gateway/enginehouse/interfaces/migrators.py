"""Migrators: move live requests between instances."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Protocol

from enginehouse.domain.instance import ClusterView, InstanceAddress, RequestView
from enginehouse.domain.migration import Migrated, Migration
from enginehouse.interfaces.drivers import EngineClient


class MigrationMeans(Protocol):
    """What the gateway hands to a migrator. Methods raise ``NotFound`` for an unknown instance or request."""

    def live(self, instance: str) -> Sequence[RequestView]:
        """The live requests of an instance, oldest first."""

    async def move(self, request: str, destination: str) -> None:
        """Continue a live stream on another instance, whatever its engine. Raises a ``RequestError`` if it stays."""

    async def join(self, request: str, destination: str, engine_request: str) -> None:
        """Get the rest of a stream from ``destination``, to which engines have moved the request themselves.

        ``engine_request``: the request's id there. Afterwards the stream does not depend on the source. Raises a
        ``RequestError`` if it still comes from there, for instance because the destination cannot be asked for it.
        """

    def moved_by_engine(self, request: str, destination: str) -> None:
        """Note that engines have moved a request that could not be joined: from now on it counts at ``destination``."""

    def engine(self, instance: str) -> EngineClient:
        """An HTTP client for the instance's engine."""

    def address(self, instance: str) -> InstanceAddress:
        """Where the instance takes commands and requests of other instances."""

    def kv_tokens(self, instance: str) -> int:
        """The size of the instance's KV cache in tokens, for ``RATIO``; 0 if it is not known."""


class Migrator(ABC):
    """Carries out migrations. The gateway uses the first configured migrator that can."""

    def prepare(self, means: MigrationMeans) -> None:
        """Called once, before anything else."""

    @abstractmethod
    def why_not(self, migration: Migration, view: ClusterView) -> str:
        """Say why this migrator cannot move requests between the two instances. Empty if it can."""

    @abstractmethod
    async def migrate(self, migration: Migration) -> Migrated:
        """Move the requests. Cancelled after ``rescheduling.migrate_timeout``.

        Raise any exception if nothing could be tried; ``Migrated.refused`` names the requests that stay.
        """
