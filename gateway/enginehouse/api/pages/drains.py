"""Takes backends out of service, and back, under ``/api/backends``."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.errors import json_response
from enginehouse.domain.errors import InvalidRequest
from enginehouse.domain.replica import ReplicaState
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.relay import Relay


class DrainPages:
    """``/api/backends/{name}/drain``, ``/undrain`` and ``/stop``."""

    def __init__(self, relay: Relay, engines: ManagedEngines) -> None:
        self._relay = relay
        self._engines = engines

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/api/backends/{name:path}/drain", self.drain, methods=["POST"]),
            Route("/api/backends/{name:path}/undrain", self.undrain, methods=["POST"]),
            Route("/api/backends/{name:path}/stop", self.stop, methods=["POST"]),
        ]

    async def drain(self, request: Request) -> Response:
        """Send no new requests to a backend, and move its streams away. Answers at once, with the live requests."""
        name = request.path_params["name"]
        self._relay.context.fleet.drain(name)
        self._relay.drains.begin(name)
        return json_response({"backend": name, "draining": True, "live": len(self._relay.drains.live(name))})

    async def undrain(self, request: Request) -> Response:
        """Send new requests to a backend again."""
        name = request.path_params["name"]
        self._relay.context.fleet.undrain(name)
        return json_response({"backend": name, "draining": False, "live": len(self._relay.drains.live(name))})

    async def stop(self, request: Request) -> Response:
        """Stop the engine of a drained backend that the gateway launched. Answers when it has stopped."""
        name = request.path_params["name"]
        self._relay.context.fleet.health(name)  # raises NotFound
        if left := len(self._relay.drains.live(name)):
            raise InvalidRequest(f"Backend '{name}' still has {left} live requests; drain it first")
        await self._engines.stop(name)
        return json_response({"backend": name, "state": ReplicaState.STOPPED})
