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
from starlette.routing import Route

from enginehouse.errors import NotFound
from enginehouse.pages import PageFacts
from enginehouse_operations.pages.endless import Pieces, endless
from enginehouse_operations.pages.log_reader import Rings, follow, history
from enginehouse_operations.pages.reading import facts_of, read_query

_OWN, _ENGINES = "proxy", "upstream"


class LogQuery(msgspec.Struct):
    """``lines``: how many lines of the history; ``None`` for all."""

    follow: bool = False
    history: bool = True
    lines: Annotated[int, Meta(ge=0)] | None = None

    @property
    def most(self) -> int | None:
        return self.lines if self.history else 0


async def _of_backend(request: Request) -> Response:
    """One engine's log; with ``?follow=true``, new lines too."""
    rings = partial(_of, facts_of(request), request.path_params["backend"])
    return _stream(request, rings) if _query(request).follow else _read(request, rings)


async def _of_all(request: Request) -> Response:
    """The logs of the gateway and all engines, merged by time."""
    return _read(request, facts_of(request).logs)


async def _stream_all(request: Request) -> Response:
    """The merged logs, then new lines."""
    return _stream(request, facts_of(request).logs)


async def _stream_one(request: Request) -> Response:
    """One engine's log, then new lines."""
    return _stream(request, partial(_of, facts_of(request), request.path_params["backend"]))


def _stream(request: Request, rings: Callable[[], Rings]) -> Response:
    rings()  # raises NotFound before the stream begins
    return endless(request, _followed(rings, _query(request).most), "text/plain")


def _of(facts: PageFacts, name: str) -> Rings:
    """The log of an engine. llama-swap calls the gateway's log ``proxy`` and those of all engines ``upstream``."""
    engines = dict(facts.logs())
    own = engines.pop("")
    if name in engines:
        return {"": engines[name]}
    if name == _OWN:
        return {"": own}
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


def _query(request: Request) -> LogQuery:
    query = request.query_params
    given = {name: value or "true" for name, value in query.items()}
    if "no-history" in query:
        given["history"] = "false"
    return read_query(given, LogQuery, "follow and history are true or false, lines is a number")


def _not_found(name: str, engines: Rings) -> NotFound:
    there_are = f"there are: {', '.join(engines)}" if engines else "this gateway launches none"
    return NotFound(f"There is no launched backend '{name}' whose output could be shown; {there_are}")


LOG_ROUTES = [
    Route("/api/logs/{backend:path}", _of_backend),
    Route("/logs", _of_all),
    Route("/logs/stream", _stream_all),
    Route("/logs/stream/{backend:path}", _stream_one),
]
