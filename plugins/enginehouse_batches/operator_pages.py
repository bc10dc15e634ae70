"""``/api/batches``: the batches of all callers, for operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.services import ServiceGateway
from enginehouse_batches.file_pages import json, most_of
from enginehouse_batches.runner import Runner
from enginehouse_batches.storage import Storage
from enginehouse_batches.store import CountedBatch


class OperatedBatches:
    """All batches, each with its caller, its running lines and why the others wait."""

    def __init__(self, gateway: ServiceGateway, storage: Storage, runner: Runner) -> None:
        self._gateway = gateway
        self._storage = storage
        self._store = storage.store
        self._runner = runner

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/api/batches", self.list, methods=["GET"]),
            Route("/api/batches/{id}", self.show, methods=["GET"]),
            Route("/api/batches/{id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def list(self, request: Request) -> Response:
        """The newest batches; ``limit`` and ``after`` as for clients."""
        most, after = most_of(request, 100, 1000), request.query_params.get("after")
        found, more = await self._storage.call(self._store.batches, None, after, most)
        return json({"batches": [self._row(each) for each in found], "has_more": more})

    async def show(self, request: Request) -> Response:
        """One batch."""
        return json(self._row(await self._storage.call(self._store.batch, request.path_params["id"])))

    async def cancel(self, request: Request) -> Response:
        """Cancel a batch of anyone."""
        now = int(self._gateway.clock.epoch())
        return json(self._row(await self._storage.call(self._store.cancel, request.path_params["id"], None, now)))

    def _row(self, found: CountedBatch) -> Mapping[str, Any]:
        batch = found.batch
        caller = None if batch.sender is None else batch.sender.name
        return {**batch.shown(found.completed, found.failed), "caller": caller, **self._runner.facts(batch.id)}
