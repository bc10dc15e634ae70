"""The engines of a virtual gateway, which its caller simulates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from enginehouse.domain.errors import CannotContinue, RequestError
from enginehouse.domain.instance import InstanceMetadata, InstanceStatus
from enginehouse.interfaces.drivers import ServedModel
from enginehouse.interfaces.launch_spec import LaunchSpec
from enginehouse.interfaces.migrators import MigrationMeans, Migrator

if TYPE_CHECKING:
    from enginehouse.app.virtual.virtual_request import VirtualRequest


class VirtualBackend(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one engine to simulate.

    ``models`` are those that the configuration names; empty if the engine decides. ``spec`` has the settings with which
    the gateway launches it; ``None`` for an engine that runs already.
    """

    name: str
    driver: str
    models: Sequence[str] = ()
    spec: LaunchSpec | None = None


class VirtualEngines(ABC):
    """Simulates the engines of a ``VirtualGateway``. Only asynchronous methods may wait."""

    @abstractmethod
    def probe(self, backend: VirtualBackend) -> tuple[Sequence[ServedModel], int | None]:
        """Return the models of an engine, and how many requests it serves at once, as probes would find them."""

    @abstractmethod
    def serve(self, request: VirtualRequest) -> None:
        """A request reaches the engine of ``request.route``. Report its answer and its end to ``request``.

        If the route has a ``prefill``, the engine of that one reads the prompt first.
        """

    @abstractmethod
    def refuse(self, request: VirtualRequest, error: RequestError) -> None:
        """The gateway answers a request with ``error``. Nothing else follows."""

    def report(self, backend: str) -> tuple[InstanceStatus, InstanceMetadata] | None:
        """Return the current figures of an engine, for rescheduling; ``None`` if it has none."""
        return None

    def output_tokens(self, request: VirtualRequest) -> int:
        """Return the number of output tokens that a live request has so far."""
        return 0

    def max_tokens(self, request: VirtualRequest) -> int | None:
        """Return the most output tokens that it may have; ``None`` if only the context limits it."""
        return None

    async def move(self, request: VirtualRequest, destination: str) -> None:
        """Continue a live request at ``destination``, as the migrator ``replay`` does; return when it is there.

        Raises ``CannotContinue`` if the request stays.
        """
        raise CannotContinue("Requests of this simulation do not move")

    def migrators(self, means: MigrationMeans) -> Mapping[str, Migrator]:
        """Return simulated migrators by type, in place of those that would ask real engines."""
        return {}

    async def load(self, backend: VirtualBackend) -> None:
        """Load a launched engine; return when it is ready. Raises ``LoadFailed``."""

    async def stop(self, backend: VirtualBackend) -> None:
        """Stop a launched engine; return when its memory is free."""
