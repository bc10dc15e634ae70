"""The logs of the gateway and its engines, under ``/api`` and under llama-swap's paths: several read as one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from enginehouse.errors import NotFound
from enginehouse.pages import LogLine, LogRing, PageFacts
from enginehouse.runtime import wait_within
from enginehouse_operations.pages.endless import Pieces, endless
from enginehouse_operations.pages.reading import facts_of, read_query

_OWN, _ENGINES = "proxy", "upstream"


Rings = Mapping[str, LogRing]
"""Logs by name. Each line begins with the name in brackets, unless the name is empty."""

_LOOK_S = 1.0
"""How often a follower looks for new logs while nothing is written to those it knows, in seconds."""


def history(rings: Rings, most: int | None = None) -> Sequence[str]:
    """The last ``most`` lines of all logs together, or all lines, in the order of their arrival."""
    lines = _merged(_labelled(name, ring.read(ring.oldest)) for name, ring in rings.items())
    return lines if most is None else lines[max(len(lines) - most, 0) :]


async def follow(rings: Callable[[], Rings], most: int | None = None) -> AsyncGenerator[Sequence[str], None]:
    """Yield the history, then new lines as they are written, without end. Lines that arrive together are one piece.

    ``rings`` is called again for each piece, because logs may be added and removed; an exception of it ends the pieces.
    A reader that is too slow loses lines and reads their number.
    """
    more = asyncio.Event()
    places = {ring: ring.written for ring in rings().values()}
    if lines := history(rings(), most):
        yield lines
    try:
        while True:
            more.clear()
            known = rings()
            places = _places(known, places, more)
            lines = _merged(_labelled(name, ring.read(places[ring])) for name, ring in known.items())
            places = {ring: ring.written for ring in places}
            if lines:
                yield lines
            else:
                await wait_within(_LOOK_S, more)
    finally:
        for ring in places:
            ring.unfollow(more)


def _places(known: Rings, before: Mapping[LogRing, int], more: asyncio.Event) -> dict[LogRing, int]:
    """The next line to read in each log. A new log is read from its beginning."""
    places = {ring: before.get(ring, ring.oldest) for ring in known.values()}
    for ring in before.keys() - places.keys():
        ring.unfollow(more)
    for ring in places:
        ring.follow(more)
    return places


def _labelled(name: str, lines: Iterable[LogLine]) -> Iterable[LogLine]:
    return (LogLine(line.arrival, f"[{name}] {line.text}") for line in lines) if name else lines


def _merged(logs: Iterable[Iterable[LogLine]]) -> list[str]:
    lines = [line for log in logs for line in log]
    lines.sort(key=lambda line: line.arrival)
    return [line.text for line in lines]


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
