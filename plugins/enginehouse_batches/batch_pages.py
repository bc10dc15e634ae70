"""``/v1/batches``: https://platform.openai.com/docs/api-reference/batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse import InvalidRequest
from enginehouse.services import ServiceGateway
from enginehouse_batches.file_pages import json, most_of, owner_of
from enginehouse_batches.objects import ENDPOINTS, WINDOW_S, Batch, listed, new_id
from enginehouse_batches.storage import Storage

_LARGEST = 1 << 20
"""Bytes of a body."""


class _NewBatch(msgspec.Struct):
    input_file_id: str
    endpoint: str
    completion_window: str
    metadata: (
        Annotated[
            dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[str, msgspec.Meta(max_length=512)]],
            msgspec.Meta(max_length=16),
        ]
        | None
    ) = None


class BatchPages:
    """The batches of whoever asks."""

    def __init__(self, gateway: ServiceGateway, storage: Storage) -> None:
        self._gateway = gateway
        self._storage = storage
        self._store = storage.store

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/v1/batches", self.create, methods=["POST"]),
            Route("/v1/batches", self.list, methods=["GET"]),
            Route("/v1/batches/{id}", self.retrieve, methods=["GET"]),
            Route("/v1/batches/{id}/cancel", self.cancel, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """Begin a batch. Its file is checked later, as OpenAI does."""
        asked = await _read(request)
        if asked.endpoint not in ENDPOINTS:
            raise InvalidRequest(f"'endpoint' must be one of {', '.join(ENDPOINTS)}", param="endpoint")
        if asked.completion_window != "24h":
            raise InvalidRequest("'completion_window' must be '24h'", param="completion_window")
        now = int(self._gateway.clock.epoch())
        batch = Batch(
            id=new_id("batch_"),
            sender=self._gateway.caller(request.headers.raw),
            endpoint=asked.endpoint,
            input_file_id=asked.input_file_id,
            metadata=asked.metadata,
            created_at=now,
            expires_at=now + WINDOW_S,
        )
        await self._storage.call(self._store.add_batch, batch)
        return json(batch.shown(0, 0))

    async def list(self, request: Request) -> Response:
        """The batches, newest first."""
        owner, after = owner_of(request, self._gateway), request.query_params.get("after")
        found, more = await self._storage.call(self._store.batches, owner, after, most_of(request, 20, 100))
        return json(listed([each.batch.shown(each.completed, each.failed) for each in found], more))

    async def retrieve(self, request: Request) -> Response:
        """One batch."""
        owner = owner_of(request, self._gateway)
        found = await self._storage.call(self._store.batch, request.path_params["id"], owner)
        return json(found.batch.shown(found.completed, found.failed))

    async def cancel(self, request: Request) -> Response:
        """Run no more lines of a batch."""
        owner, now = owner_of(request, self._gateway), int(self._gateway.clock.epoch())
        found = await self._storage.call(self._store.cancel, request.path_params["id"], owner, now)
        return json(found.batch.shown(found.completed, found.failed))


async def _read(request: Request) -> _NewBatch:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST:
            raise InvalidRequest(f"The request body is larger than {_LARGEST} bytes")
    try:
        return msgspec.json.decode(body, type=_NewBatch)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(str(error)) from None
