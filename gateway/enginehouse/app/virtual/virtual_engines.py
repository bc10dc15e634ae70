"""The engines of a virtual gateway, which its caller plays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from enginehouse.domain.errors import CannotContinue, RequestError
from enginehouse.domain.instance import InstanceMetadata, InstanceStatus
from enginehouse.interfaces.drivers import LaunchSpec, ServedModel
from enginehouse.interfaces.migrators import MigrationMeans, Migrator

if TYPE_CHECKING:
    from enginehouse.app.virtual.virtual_request import VirtualRequest


class VirtualBackend(msgspec.Struct, frozen=True, kw_only=True):
    """One engine to play, as it is configured.

    ``models``: those that the configuration names; empty if the engine decides. ``spec``: how the gateway launches it;
    ``None`` for an engine that runs already.
    """

    name: str
    driver: str
    models: Sequence[str] = ()
    spec: LaunchSpec | None = None


class VirtualEngines(ABC):
    """Plays the engines of a ``VirtualGateway``. No method but the loads and stops may wait."""

    @abstractmethod
    def probe(self, backend: VirtualBackend) -> tuple[Sequence[ServedModel], int | None]:
        """The models that an engine serves and the requests that it serves at once, as probes would learn them."""

    @abstractmethod
    def serve(self, request: VirtualRequest) -> None:
        """A request reaches the engine of ``request.route``. Report its answer and its end to ``request``.

        If the route has a ``prefill``, the engine of that one reads the prompt first.
        """

    @abstractmethod
    def refuse(self, request: VirtualRequest, error: RequestError) -> None:
        """The gateway answers a request with ``error``. Nothing else follows."""

    def report(self, backend: str) -> tuple[InstanceStatus, InstanceMetadata] | None:
        """The figures of an engine of now, for rescheduling; ``None`` if it has none."""
        return None

    def output_tokens(self, request: VirtualRequest) -> int:
        """How many tokens a live request has so far."""
        return 0

    def max_tokens(self, request: VirtualRequest) -> int | None:
        """The most tokens that it may have; ``None`` if only the context limits it."""
        return None

    async def move(self, request: VirtualRequest, destination: str) -> None:
        """Have ``destination`` continue a live request, as the migrator ``replay`` does; return when it is there.

        Raises ``CannotContinue`` if the request stays.
        """
        raise CannotContinue("Requests of this simulation do not move")

    def migrators(self, means: MigrationMeans) -> Mapping[str, Migrator]:
        """The migrators that it plays, by type: those whose plugins would ask real engines."""
        return {}

    async def load(self, backend: VirtualBackend) -> None:
        """Load a launched engine; return when it is ready. Raises ``LoadFailed``."""

    async def stop(self, backend: VirtualBackend) -> None:
        """Stop a launched engine; return when its memory is free."""
