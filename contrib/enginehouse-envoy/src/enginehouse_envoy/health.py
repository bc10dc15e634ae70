"""gRPC's health service, with the names that endpoint pickers have."""

from __future__ import annotations

from grpc_health.v1 import health, health_pb2

from enginehouse_envoy.ext_proc import SERVICE

_READY = ("readiness", SERVICE, "inference-extension", "")
"""``inference-extension`` is what the conformance manifests of GIE ask for."""
_ALIVE = "liveness"


class Health:
    """Says that the picker is alive, and whether it is ready. ``servicer``: for a gRPC server."""

    def __init__(self) -> None:
        self.servicer = health.aio.HealthServicer()

    async def begin(self) -> None:
        """The picker is alive, and not yet ready."""
        await self.servicer.set(_ALIVE, health_pb2.HealthCheckResponse.SERVING)
        await self.set_ready(False)

    async def set_ready(self, ready: bool) -> None:
        """Say whether requests may come."""
        serving = health_pb2.HealthCheckResponse
        for name in _READY:
            await self.servicer.set(name, serving.SERVING if ready else serving.NOT_SERVING)
