"""``/v1/files``: https://platform.openai.com/docs/api-reference/files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Route

from enginehouse import InvalidRequest
from enginehouse.services import ServiceGateway
from enginehouse_batches.objects import listed
from enginehouse_batches.storage import Storage

_MOST = 10_000
_MOST_FIELDS = 8
_LEAST_EXPIRY_S, _MOST_EXPIRY_S = 3600, 2_592_000
"""As OpenAI has them."""


class FilePages:
    """The files of whoever asks."""

    def __init__(self, gateway: ServiceGateway, storage: Storage) -> None:
        self._gateway = gateway
        self._storage = storage
        self._store = storage.store

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
            owner, now = owner_of(request, self._gateway), int(self._gateway.clock.epoch())
            name = (file.filename or "file")[:512]
            add = self._store.add_file
            kept = await self._storage.call(add, owner, name, file.file, expiry_of(dict(form)), now)
        return json(kept.shown())

    async def list(self, request: Request) -> Response:
        """The files, newest first."""
        asked = request.query_params
        files, more = await self._storage.call(
            self._store.files,
            owner_of(request, self._gateway),
            asked.get("purpose"),
            asked.get("after"),
            most_of(request, _MOST, _MOST),
            oldest_first=asked.get("order") == "asc",
        )
        return json(listed([each.shown() for each in files], more))

    async def retrieve(self, request: Request) -> Response:
        """One file."""
        owner = owner_of(request, self._gateway)
        return json((await self._storage.call(self._store.file, owner, request.path_params["id"])).shown())

    async def delete(self, request: Request) -> Response:
        """Delete a file."""
        id = request.path_params["id"]
        await self._storage.call(self._store.delete_file, owner_of(request, self._gateway), id)
        return json({"id": id, "object": "file", "deleted": True})

    async def content(self, request: Request) -> Response:
        """What is in a file."""
        owner = owner_of(request, self._gateway)
        file = await self._storage.call(self._store.file, owner, request.path_params["id"])
        return FileResponse(self._store.content(file.id), media_type="application/octet-stream", filename=file.filename)


def owner_of(request: Request, gateway: ServiceGateway) -> str:
    """The name of whoever asks; empty without keys."""
    caller = gateway.caller(request.headers.raw)
    return "" if caller is None else caller.name


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
    if fields.get("expires_after[anchor]") != "created_at" or not str(text).isdigit():
        raise InvalidRequest("'expires_after' needs the anchor 'created_at' and seconds", param="expires_after")
    seconds = int(str(text)[:9])
    if not _LEAST_EXPIRY_S <= seconds <= _MOST_EXPIRY_S:
        raise InvalidRequest(f"'expires_after' is from {_LEAST_EXPIRY_S} to {_MOST_EXPIRY_S} s", param="expires_after")
    return seconds


def json(content: object) -> Response:
    """``content`` as JSON."""
    return Response(msgspec.json.encode(content), media_type="application/json")
