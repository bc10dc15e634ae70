"""The logs of the gateway and its engines, under ``/api`` and under llama-swap's paths."""

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

from enginehouse.api.pages.endless import EndlessStreams, Pieces
from enginehouse.api.pages.reading import read_query
from enginehouse.domain.errors import NotFound
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.telemetry.log_ring import LogRing, Rings, follow, history

_OWN, _ENGINES = "proxy", "upstream"


class _LogQuery(msgspec.Struct):
    """``lines``: how many lines of the history; ``None`` for all."""

    follow: bool = False
    history: bool = True
    lines: Annotated[int, Meta(ge=0)] | None = None

    @property
    def most(self) -> int | None:
        return self.lines if self.history else 0


class Logs:
    """``/api/logs/{backend}``, ``/logs`` and ``/logs/stream``. ``own`` is the gateway's own log."""

    def __init__(self, engines: ManagedEngines, own: LogRing, streams: EndlessStreams) -> None:
        self._engines = engines
        self._own = own
        self._streams = streams

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/api/logs/{backend:path}", self.of_backend),
            Route("/logs", self.of_all),
            Route("/logs/stream", self.stream_all),
            Route("/logs/stream/{backend:path}", self.stream),
        ]

    async def of_backend(self, request: Request) -> Response:
        """One engine's log; with ``?follow=true``, new lines too."""
        rings = partial(self._of, request.path_params["backend"])
        return self._stream(request, rings) if _query(request).follow else _read(request, rings)

    async def of_all(self, request: Request) -> Response:
        """The logs of the gateway and all engines, merged by time."""
        return _read(request, self._all)

    async def stream_all(self, request: Request) -> Response:
        """The merged logs, then new lines."""
        return self._stream(request, self._all)

    async def stream(self, request: Request) -> Response:
        """One engine's log, then new lines."""
        return self._stream(request, partial(self._of, request.path_params["backend"]))

    def _stream(self, request: Request, rings: Callable[[], Rings]) -> Response:
        rings()  # raises NotFound before the stream begins
        return self._streams.answer(request, _followed(rings, _query(request).most), "text/plain")

    def _all(self) -> Rings:
        return {"": self._own, **self._engines.logs()}

    def _of(self, name: str) -> Rings:
        """The log of an engine. llama-swap calls the gateway's log ``proxy`` and those of all engines ``upstream``."""
        engines = self._engines.logs()
        if name in engines:
            return {"": engines[name]}
        if name == _OWN:
            return {"": self._own}
        if name == _ENGINES:
            return engines
        raise _not_found(name, engines)


def _read(request: Request, rings: Callable[[], Rings]) -> Response:
    return PlainTextResponse(_text(history(rings(), _query(request).most)))


async def _followed(rings: Callable[[], Rings], most: int | None) -> Pieces:
    with suppress(NotFound):  # the backend was removed
        async with aclosing(follow(rings, most)) as pieces:
            async for lines in pieces:
                yield _text(lines).encode()


def _text(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _query(request: Request) -> _LogQuery:
    query = request.query_params
    given = {name: value or "true" for name, value in query.items()}
    if "no-history" in query:
        given["history"] = "false"
    return read_query(given, _LogQuery, "follow and history are true or false, lines is a number")


def _not_found(name: str, engines: Rings) -> NotFound:
    there_are = f"there are: {', '.join(engines)}" if engines else "this gateway launches none"
    return NotFound(f"There is no launched backend '{name}' whose output could be shown; {there_are}")
