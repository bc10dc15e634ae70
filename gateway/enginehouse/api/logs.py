"""What engines and the gateway itself print: under ``/api``, and as llama-swap's users know it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from enginehouse.api.endless import EndlessStreams, Pieces
from enginehouse.api.entrance import Entrance
from enginehouse.api.guard import Endpoint, admin_only
from enginehouse.domain.errors import InvalidRequest, NotFound
from enginehouse.engines.hosts import Hosts
from enginehouse.telemetry.log_reader import Rings, follow, history
from enginehouse.telemetry.log_ring import LogRing

_OWN, _ENGINES = "proxy", "upstream"


class _Wish(msgspec.Struct):
    """The query. ``lines``: how many of the history; ``None`` for all that there is."""

    follow: bool = False
    history: bool = True
    lines: Annotated[int, Meta(ge=0)] | None = None

    @property
    def most(self) -> int | None:
        return self.lines if self.history else 0


class Logs:
    """``/api/logs/{backend}``, ``/logs`` and ``/logs/stream``. ``own`` is the gateway's own log."""

    def __init__(self, entrance: Entrance, hosts: Hosts, own: LogRing, streams: EndlessStreams) -> None:
        self._entrance = entrance
        self._hosts = hosts
        self._own = own
        self._streams = streams

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """The endpoints; all of them ask for an admin key where keys are set."""
        return [
            Route("/api/logs/{backend:path}", self._admin(self.of_backend)),
            Route("/logs", self._admin(self.of_all)),
            Route("/logs/stream", self._admin(self.stream_all)),
            Route("/logs/stream/{backend:path}", self._admin(self.stream)),
        ]

    async def of_backend(self, request: Request) -> Response:
        """What one engine printed; with ``?follow=true`` also what it prints from now on."""
        rings = partial(self._of, request.path_params["backend"])
        return self._stream(request, rings) if _wish(request).follow else _read(request, rings)

    async def of_all(self, request: Request) -> Response:
        """The gateway's own log and what all engines printed, in the order in which it came."""
        return _read(request, self._all)

    async def stream_all(self, request: Request) -> Response:
        """The same, and what comes from now on."""
        return self._stream(request, self._all)

    async def stream(self, request: Request) -> Response:
        """What one engine printed, and what it prints from now on."""
        return self._stream(request, partial(self._of, request.path_params["backend"]))

    def _stream(self, request: Request, rings: Callable[[], Rings]) -> Response:
        rings()  # what does not exist has no stream
        return self._streams.answer(request, _followed(rings, _wish(request).most), "text/plain")

    def _all(self) -> Rings:
        return {"": self._own, **self._hosts.logs()}

    def _of(self, name: str) -> Rings:
        """The log of an engine; or by llama-swap's names for them, the gateway's own or that of all engines."""
        engines = self._hosts.logs()
        if name in engines:
            return {"": engines[name]}
        if name == _OWN:
            return {"": self._own}
        if name == _ENGINES:
            return engines
        raise _not_found(name, engines)

    def _admin(self, endpoint: Endpoint) -> Endpoint:
        return admin_only(self._entrance, endpoint)


def _read(request: Request, rings: Callable[[], Rings]) -> Response:
    return PlainTextResponse(_text(history(rings(), _wish(request).most)))


async def _followed(rings: Callable[[], Rings], most: int | None) -> Pieces:
    with suppress(NotFound):  # the backend is not there any more
        async with aclosing(follow(rings, most)) as pieces:
            async for lines in pieces:
                yield _text(lines).encode()


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _wish(request: Request) -> _Wish:
    query = request.query_params
    given = {name: value or "true" for name, value in query.items()}
    if "no-history" in query:
        given["history"] = "false"
    try:
        return msgspec.convert(given, _Wish, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{error} of the query; follow and history are true or false, lines is a number") from None


def _not_found(name: str, engines: Rings) -> NotFound:
    there_are = f"there are: {', '.join(engines)}" if engines else "this gateway launches none"
    return NotFound(f"There is no launched backend '{name}' whose output could be shown; {there_are}")
