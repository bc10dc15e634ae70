"""gRPC's health service, with the names that endpoint pickers have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc

from enginehouse_envoy import envoy_pb2 as pb
from enginehouse_envoy.ext_proc import SERVICE as EXT_PROC

SERVICE = "grpc.health.v1.Health"
_READY = ("readiness", EXT_PROC, "inference-extension", "")
"""``inference-extension`` is what the conformance manifests of GIE ask for."""
_ALIVE = "liveness"
_Status = pb.HealthCheckResponse


class Health:
    """Says that the picker is alive, and whether it is ready: at first it is not."""

    def __init__(self) -> None:
        self._ready = False
        self._changed = asyncio.Event()

    def set_ready(self, ready: bool) -> None:
        """Say whether requests may come."""
        self._ready = ready
        self._changed.set()
        self._changed = asyncio.Event()

    async def check(self, request: pb.HealthCheckRequest, context: Any) -> pb.HealthCheckResponse:
        """The status of a service."""
        status = self._status(request.service)
        if status == _Status.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND)
        return pb.HealthCheckResponse(status=status)

    async def watch(self, request: pb.HealthCheckRequest, context: Any) -> AsyncIterator[pb.HealthCheckResponse]:
        """The status of a service, and each change of it."""
        told = None
        while True:
            changed, status = self._changed, self._status(request.service)
            if status != told:
                yield pb.HealthCheckResponse(status=status)
                told = status
            await changed.wait()

    def handler(self) -> grpc.GenericRpcHandler:
        """For a gRPC server."""
        reads, writes = pb.HealthCheckRequest.FromString, pb.HealthCheckResponse.SerializeToString
        check: Any = grpc.unary_unary_rpc_method_handler(self.check, reads, writes)
        watch: Any = grpc.unary_stream_rpc_method_handler(self.watch, reads, writes)
        return grpc.method_handlers_generic_handler(SERVICE, {"Check": check, "Watch": watch})

    def _status(self, service: str) -> pb.HealthCheckResponse.ServingStatus:
        if service in _READY:
            return _Status.SERVING if self._ready else _Status.NOT_SERVING
        return _Status.SERVING if service == _ALIVE else _Status.SERVICE_UNKNOWN
