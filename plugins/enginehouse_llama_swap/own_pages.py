"""Asks the gateway's own pages on behalf of a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Message, Scope

_INSIDE: Final = "enginehouse_llama_swap.inside"
"""Marks a scope of which no route of this plugin is in charge."""
_MOST_PIECES: Final = 64
"""Pieces of an endless answer that wait for their reader."""
_WITHOUT_BODY: Final = frozenset({b"content-length", b"content-type", b"transfer-encoding"})


class Answer(NamedTuple):
    """An answer of the gateway."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def json(self) -> Any:
        """The body, decoded. Raises ``Refused`` for an error."""
        if self.status >= 400:
            raise Refused(self)
        return msgspec.json.decode(self.body)

    def response(self) -> Response:
        """The same answer for the client."""
        response = Response(self.body, self.status)
        response.raw_headers = list(self.headers)
        return response


class Refused(Exception):
    """The gateway answered with an error, which is for the client too."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


Page = Callable[[Request], Awaitable[Response]]


def passing_refusals(page: Page) -> Page:
    """``page``, which passes errors of the gateway's own pages on."""

    async def answer(request: Request) -> Response:
        try:
            return await page(request)
        except Refused as refused:
            return refused.answer.response()

    return answer


class OutsideRoute(Route):
    """A route that is in charge of requests from outside, not of those with which this plugin asks for own pages.

    So a page of llama-swap may have the path of the gateway's page that it is made from.
    """

    def __init__(self, path: str, page: Page, methods: list[str] | None = None) -> None:
        super().__init__(path, passing_refusals(page), methods=methods)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return (Match.NONE, {}) if _INSIDE in scope else super().matches(scope)


async def ask(request: Request, method: str, path: str, **query: str | int) -> Answer:
    """Ask a page of the gateway with the headers of ``request`` and without a body. ``path`` is quoted."""
    head: Message = {}
    pieces: list[bytes] = []
    answered = asyncio.Event()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            head.update(message)
        else:
            pieces.append(message.get("body", b""))
            if not message.get("more_body", False):
                answered.set()

    await request.app(_scope(request, method, path, query), _Body(answered).receive, send)
    return Answer(head["status"], list(head.get("headers", ())), b"".join(pieces))


async def follow(request: Request, path: str, **query: str | int) -> AsyncGenerator[bytes, None]:
    """Ask a page whose answer has no end, and yield it. Raises ``Refused`` for an error."""
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_MOST_PIECES)
    closed = asyncio.Event()
    status = 0

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif piece := message.get("body", b""):
            await pieces.put(piece)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            await pieces.put(None)

    asking = asyncio.ensure_future(request.app(_scope(request, "GET", path, query), _Body(closed).receive, send))
    try:
        while (piece := await pieces.get()) is not None:
            if status >= 400:
                raise Refused(Answer(status, [(b"content-type", b"application/json")], piece))
            yield piece
    finally:
        closed.set()
        asking.cancel()
        await asyncio.wait({asking})


class _Body:
    """The empty body of a request, and then its client's departure, once ``left`` is set."""

    def __init__(self, left: asyncio.Event) -> None:
        self._left = left
        self._read = False

    async def receive(self) -> Message:
        if not self._read:
            self._read = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}


def _scope(request: Request, method: str, path: str, query: dict[str, str | int]) -> Scope:
    kept = {key: value for key, value in request.scope.items() if key not in ("route", "endpoint", "path_params")}
    return kept | {
        _INSIDE: True,
        "method": method,
        "path": path,
        "raw_path": quote(path).encode(),
        "query_string": urlencode(query).encode(),
        "headers": [header for header in request.scope["headers"] if header[0].lower() not in _WITHOUT_BODY],
    }
