"""The engines of a virtual gateway, which its caller plays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.interfaces.drivers import LaunchSpec, ServedModel

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
        """A request reaches the engine of ``request.route``. Report its answer and its end to ``request``."""

    @abstractmethod
    def refuse(self, request: VirtualRequest, error: RequestError) -> None:
        """The gateway answers a request with ``error``. Nothing else follows."""

    async def load(self, backend: VirtualBackend) -> None:
        """Load a launched engine; return when it is ready. Raises ``LoadFailed``."""

    async def stop(self, backend: VirtualBackend) -> None:
        """Stop a launched engine; return when its memory is free."""
