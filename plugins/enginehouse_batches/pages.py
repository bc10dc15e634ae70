"""``/v1/files`` and ``/v1/batches`` as OpenAI has them, and ``/api/batches`` for operators.

https://platform.openai.com/docs/api-reference/files and https://platform.openai.com/docs/api-reference/batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from enginehouse import InvalidRequest
from enginehouse.pages import json_response
from enginehouse.services import ServiceGateway
from enginehouse_batches.objects import ENDPOINTS, WINDOW_S, Batch, listed, new_id
from enginehouse_batches.runner import Runner
from enginehouse_batches.store import CountedBatch, Storage

_MOST = 10_000
_MOST_FIELDS = 8
_LEAST_EXPIRY_S, _MOST_EXPIRY_S = 3600, 2_592_000
"""As OpenAI has them."""
_LARGEST = 1 << 20
"""Bytes of a body."""


class _StoredPages:
    """Pages of what ``storage`` keeps."""

    def __init__(self, gateway: ServiceGateway, storage: Storage) -> None:
        self._gateway = gateway
        self._storage = storage
        self._store = storage.store

    def _now(self) -> int:
        return int(self._gateway.clock.epoch())

    def _owner(self, request: Request) -> str:
        """The name of the caller; empty without keys."""
        caller = self._gateway.caller(request.headers.raw)
        return "" if caller is None else caller.name


class FilePages(_StoredPages):
    """The files of the caller."""

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/v1/files", self.create, methods=["POST"]),
            Route("/v1/files", self.list, methods=["GET"]),
            Route("/v1/files/{id}", self.retrieve, methods=["GET"]),
            Route("/v1/files/{id}", self.delete, methods=["DELETE"]),
            Route("/v1/files/{id}/content", self.content, methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """Keep a file of a form."""
        async with request.form(max_files=1, max_fields=_MOST_FIELDS) as form:
            file, purpose = form.get("file"), form.get("purpose")
            if not isinstance(file, UploadFile):
                raise InvalidRequest("'file' must be a file of a form (multipart/form-data)", param="file")
            if purpose != "batch":
                raise InvalidRequest("Files are for batches only: send purpose=batch", param="purpose")
            owner, now = self._owner(request), self._now()
            name = (file.filename or "file")[:512]
            add = self._store.add_file
            kept = await self._storage.call(add, owner, name, file.file, expiry_of(dict(form)), now)
        return json_response(kept.shown())

    async def list(self, request: Request) -> Response:
        """The files, newest first."""
        asked = request.query_params
        files, more = await self._storage.call(
            self._store.files,
            self._owner(request),
            asked.get("purpose"),
            asked.get("after"),
            most_of(request, _MOST, _MOST),
            oldest_first=asked.get("order") == "asc",
        )
        return json_response(listed([each.shown() for each in files], more))

    async def retrieve(self, request: Request) -> Response:
        """One file."""
        owner = self._owner(request)
        return json_response((await self._storage.call(self._store.file, owner, request.path_params["id"])).shown())

    async def delete(self, request: Request) -> Response:
        """Delete a file."""
        id = request.path_params["id"]
        await self._storage.call(self._store.delete_file, self._owner(request), id)
        return json_response({"id": id, "object": "file", "deleted": True})

    async def content(self, request: Request) -> Response:
        """What is in a file."""
        owner = self._owner(request)
        file = await self._storage.call(self._store.file, owner, request.path_params["id"])
        return FileResponse(self._store.content(file.id), media_type="application/octet-stream", filename=file.filename)


def most_of(request: Request, usual: int, most: int) -> int:
    """How long a page of a list is to be. Raises ``InvalidRequest``."""
    text = request.query_params.get("limit", str(usual))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= most:
        raise InvalidRequest(f"'limit' must be a number from 1 to {most}", param="limit")
    return int(text[:9])


def expiry_of(fields: Mapping[str, Any]) -> int | None:
    """After how many seconds a file expires, as the form says. Raises ``InvalidRequest``."""
    text = fields.get("expires_after[seconds]")
    if text is None:
        return None
    if fields.get("expires_after[anchor]") != "created_at" or not str(text).isdecimal():
        raise InvalidRequest("'expires_after' needs the anchor 'created_at' and seconds", param="expires_after")
    seconds = int(str(text)[:9])
    if not _LEAST_EXPIRY_S <= seconds <= _MOST_EXPIRY_S:
        raise InvalidRequest(f"'expires_after' is from {_LEAST_EXPIRY_S} to {_MOST_EXPIRY_S} s", param="expires_after")
    return seconds


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


class BatchPages(_StoredPages):
    """The batches of the caller."""

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
        now = self._now()
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
        return json_response(batch.shown(0, 0))

    async def list(self, request: Request) -> Response:
        """The batches, newest first."""
        owner, after = self._owner(request), request.query_params.get("after")
        found, more = await self._storage.call(self._store.batches, owner, after, most_of(request, 20, 100))
        return json_response(listed([each.batch.shown(each.completed, each.failed) for each in found], more))

    async def retrieve(self, request: Request) -> Response:
        """One batch."""
        owner = self._owner(request)
        found = await self._storage.call(self._store.batch, request.path_params["id"], owner)
        return json_response(found.batch.shown(found.completed, found.failed))

    async def cancel(self, request: Request) -> Response:
        """Run no more lines of a batch."""
        owner, now = self._owner(request), self._now()
        found = await self._storage.call(self._store.cancel, request.path_params["id"], owner, now)
        return json_response(found.batch.shown(found.completed, found.failed))


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


class OperatedBatches(_StoredPages):
    """All batches, each with its caller, its running lines and why the others wait."""

    def __init__(self, gateway: ServiceGateway, storage: Storage, runner: Runner) -> None:
        super().__init__(gateway, storage)
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
        return json_response({"batches": [self._row(each) for each in found], "has_more": more})

    async def show(self, request: Request) -> Response:
        """One batch."""
        return json_response(self._row(await self._storage.call(self._store.batch, request.path_params["id"])))

    async def cancel(self, request: Request) -> Response:
        """Cancel a batch of anyone."""
        now = self._now()
        return json_response(
            self._row(await self._storage.call(self._store.cancel, request.path_params["id"], None, now))
        )

    def _row(self, found: CountedBatch) -> Mapping[str, Any]:
        batch = found.batch
        caller = None if batch.sender is None else batch.sender.name
        return {**batch.shown(found.completed, found.failed), "caller": caller, **self._runner.facts(batch.id)}
