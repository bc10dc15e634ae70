"""The pages that clients' protocols answer themselves, without an engine or with a question to one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import Receive, Scope, Send

from enginehouse.errors import BodyTooLarge, ModelNotFound
from enginehouse.pages import PageFacts
from enginehouse.protocols import PageRequest
from enginehouse_model_list.model_list import ModelEntries

_LARGEST: Final = 64 * 1024
"""Bytes of a body that is sent to a page of a protocol; these are asked for a name at most."""


class ProtocolPages(BaseRoute):
    """The pages of the protocols that the gateway has."""

    def __init__(self) -> None:
        self._pages: Router | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if self._pages is None:
            self._pages = Router([*_pages(scope["app"].state.facts)], redirect_slashes=False)
        return Match(max((page.matches(scope)[0].value for page in self._pages.routes), default=Match.NONE.value)), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._pages is not None, "it has matched"
        await self._pages(scope, receive, send)


def _pages(facts: PageFacts) -> Iterator[Route]:
    for protocol in facts.protocols():
        for method, path in protocol.pages:
            yield Route(path, partial(_answer, protocol), methods=[method])


async def _answer(protocol: Any, request: Request) -> Response:
    entries = ModelEntries(request)
    models, body = entries.listed(), await _body(request)
    method = "GET" if request.method == "HEAD" else request.method  # Starlette adds HEAD to each GET
    engine = request.app.state.facts.engine
    asked = PageRequest(method, request.url.path, request.query_params, body, models, entries.caller, engine)
    try:
        return Response(await protocol.answer_page(asked), media_type="application/json")
    except ModelNotFound as error:
        raise entries.unknown(error.details["model"], models) from None


async def _body(request: Request) -> bytes:
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST:
            raise BodyTooLarge(f"The request body is larger than {_LARGEST} bytes")
    return body
