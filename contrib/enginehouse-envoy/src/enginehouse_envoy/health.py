"""gRPC's health service, with the names that endpoint pickers have."""

from __future__ import annotations

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse

from enginehouse_envoy.ext_proc import SERVICE as EXT_PROC

_READY = ("readiness", EXT_PROC, "inference-extension", "")
"""``inference-extension`` is what the conformance manifests of GIE ask for."""


class Health:
    """Says that the picker is alive, and whether it is ready."""

    def __init__(self) -> None:
        self._servicer = health.aio.HealthServicer()

    async def set_ready(self, ready: bool) -> None:
        """Say whether requests may come."""
        for name in _READY:
            await self._servicer.set(name, HealthCheckResponse.SERVING if ready else HealthCheckResponse.NOT_SERVING)
        await self._servicer.set("liveness", HealthCheckResponse.SERVING)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Have ``server`` serve it."""
        health_pb2_grpc.add_HealthServicer_to_server(self._servicer, server)
