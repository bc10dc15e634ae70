"""What protocols of clients answer themselves, such as Ollama's ``GET /api/tags``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.pages.model_list import ModelList
from enginehouse.domain.errors import BodyTooLarge, ModelNotFound, RequestError
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.interfaces.protocols import PageRequest, Protocol

_LARGEST = 64 * 1024
"""Bytes of a body; these pages are asked for a name at most."""


def protocol_pages(
    protocols: Sequence[Protocol], models: ModelList, engine: Callable[[str], EngineClient]
) -> Iterator[BaseRoute]:
    """The pages of ``protocols``, made from the entries of ``models`` that the caller may use.

    ``engine``: as in ``PageRequest``.
    """
    for protocol in protocols:
        for method, path in protocol.pages:
            yield Route(path, _Page(protocol, models, engine).answer, methods=[method])


class _Page:
    def __init__(self, protocol: Protocol, models: ModelList, engine: Callable[[str], EngineClient]) -> None:
        self._protocol = protocol
        self._models = models
        self._engine = engine

    async def answer(self, request: Request) -> Response:
        try:
            models, body = self._models.listed(request), await _body(request)
            method = "GET" if request.method == "HEAD" else request.method  # Starlette adds HEAD to each GET
            caller, path = self._models.caller(request), request.url.path
            asked = PageRequest(method, path, request.query_params, body, models, caller, self._engine)
            content, status = await self._protocol.answer_page(asked), 200
        except RequestError as error:
            if isinstance(error, ModelNotFound):
                error = self._models.unknown(error.details["model"], models)
            content, status = self._protocol.error(error.status, error.envelope()), error.status
        return Response(content, status, media_type="application/json")


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST:
            raise BodyTooLarge(f"The request body is larger than {_LARGEST} bytes")
    return body
