"""Whole requests to an engine: probes and operations."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from enginehouse.aio.timeouts import run_within
from enginehouse.domain.errors import NotFound, Overloaded, UpstreamError, UpstreamTimeout
from enginehouse.interfaces.drivers import EngineResponse
from enginehouse.relay.engine_memory import FULL, HeldAnswer
from enginehouse.relay.events.sse import LARGEST_HELD, is_whole, read_events, whole_events
from enginehouse.relay.heads import AnswerHead, read_lines
from enginehouse.relay.upstream.connection import Connection
from enginehouse.relay.upstream.upstream import Pool, Upstream

_LARGEST: Final = 1 << 20
"""In bytes: of an answer. What an engine says of itself and its load is far smaller."""
_LARGEST_LIST: Final = 4 << 20
_LARGEST_PAGE: Final = 16 << 20
_PAGE_TIMEOUT_S: Final = 30.0
_LISTS: Final = ("models", "metrics", "tags")
"""The ends of the paths of pages that grow with models and with their metrics."""
_PER_BYTE: Final = 16
"""How much longer the answer to a question about a prompt may be: tokens with their texts, for example."""


def client_of(
    upstreams: Mapping[str, Upstream], backend: str, timeout: float = _PAGE_TIMEOUT_S, largest: int = _LARGEST_PAGE
) -> Client:
    """A client of a backend, for what pages and protocols ask its engine. Raises ``NotFound`` for an unknown one."""
    if backend not in upstreams:
        raise NotFound(f"There is no backend '{backend}'")
    return Client(upstreams[backend], timeout, largest)


class Client:
    """An ``EventClient`` on the connections that live requests use. ``largest``: of an answer, instead of the usual.

    ``timeout``: in seconds, of one request; ``None`` if the caller has a limit. ``ahead``: connections to an engine
    that requests do not use yet. ``last``: the last question and the status of its answer, for people.
    """

    def __init__(self, upstream: Upstream, timeout: float | None, largest: int = 0, ahead: Pool | None = None) -> None:
        self._upstream = upstream
        self._ahead = ahead
        self.last = ""
        self._timeout = timeout
        self._largest = largest

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        """Send a request and read the whole answer.

        Raises ``UpstreamError``, also for an answer that is too large, ``UpstreamTimeout`` for one that is late, and
        ``Overloaded`` if there is no room for it.
        """
        try:
            return await run_within(self._timeout, self._request(method, path, body))
        except TimeoutError:
            raise UpstreamTimeout(f"no answer from {self._upstream.name} in {self._timeout:g} s") from None

    async def follow(self, path: str, on_event: Callable[[bytes], None]) -> None:
        """Call ``on_event`` with the data of each server-sent event of ``GET path``, on a connection of its own.

        Raises ``UpstreamError`` when the events end, ``UpstreamTimeout`` if they do not begin in time.
        """
        pool = self._ahead or self._upstream.pool
        request = self._upstream.fixed("GET", path, pool) + b"accept: text/event-stream\r\n\r\n"
        try:
            connection = await run_within(self._timeout, pool.connect())
        except TimeoutError:
            raise UpstreamTimeout(f"no connection to {self._upstream.name} in {self._timeout:g} s") from None
        events = FollowedEvents(on_event)
        connection.send(events, request)
        try:
            await asyncio.wait({events.begun}, timeout=self._timeout)
            if not events.begun.done():
                raise UpstreamTimeout(f"no events from {self._upstream.name} in {self._timeout:g} s")
            await events.ended
        finally:
            connection.abandon(events)
            del events  # a failure refers to this frame, and the events to the failure

    async def _request(self, method: str, path: str, body: bytes) -> EngineResponse:
        pool = self._ahead or self._upstream.pool
        content = b"content-type: application/json\r\n" if body else b""
        length = b"content-length: %d\r\n\r\n" % len(body)
        request = self._upstream.fixed(method, path, pool) + content + length + body
        usual = _LARGEST_LIST if path.partition("?")[0].endswith(_LISTS) else _LARGEST
        most = (self._largest or usual) + _PER_BYTE * len(body)
        held = HeldAnswer(self._upstream.outside.engine_memory, "question", most)
        kept, response = pool.take(), None
        try:
            if kept is not None:
                with contextlib.suppress(_Stale):
                    response = await _ask(kept, request, held)
            if response is None:
                response = await _ask(await pool.connect(), request, held)
        finally:
            held.drop()
        self.last = f"{method} {path} answered {response.status}"
        return response


async def _ask(connection: Connection, request: bytes, held: HeldAnswer) -> EngineResponse:
    answer = _WholeAnswer(held)
    connection.send(answer, request)
    try:
        return await answer.done
    finally:
        connection.abandon(answer)
        del answer  # a failure refers to this frame, and the answer to the failure


class _Stale(Exception):
    """A kept-alive connection was closed before it was used."""


class _WholeAnswer:
    """Collects an answer in what is ``held``."""

    def __init__(self, held: HeldAnswer) -> None:
        self.done: asyncio.Future[EngineResponse] = asyncio.get_running_loop().create_future()
        self._head: AnswerHead | None = None
        self._held = held

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        self._head = head or self._head
        if self.done.done():
            return
        if why := self._held.add(body):
            problem = Overloaded(why) if why is FULL else UpstreamError(f"its answer is too large: {why}")
            self.done.set_exception(problem)
        elif complete and self._head is not None:
            answer = EngineResponse(self._head.status, read_lines(self._head.lines), bytes(self._held.body))
            self.done.set_result(answer)

    def broken(self, why: str, *, stale: bool) -> None:
        if not self.done.done():
            self.done.set_exception(_Stale() if stale else UpstreamError(why))


class FollowedEvents:
    """Hands the data of each event of an answer to ``on_event``.

    ``begun``: done with the engine's first answer. ``ended``: fails with ``UpstreamError`` at the end, or with what
    ``on_event`` raises.
    """

    def __init__(self, on_event: Callable[[bytes], None]) -> None:
        loop = asyncio.get_running_loop()
        self.begun: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._on_event = on_event
        self._held = b""

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        if self.ended.done():
            return
        if head is not None:
            if not head.stream or head.status != 200:
                self._end(f"it has no events (status {head.status})")
                return
            self.begun.set_result(None)
        whole, self._held = whole_events(self._held + body)
        if whole and not is_whole(whole):
            self._end(f"an event has more than {LARGEST_HELD} bytes")
            return
        try:
            for event in read_events(whole):
                if event.data is not None:
                    self._on_event(event.data)
        except Exception as error:  # of the follower, who gets it
            self._end("", error)
        if complete:
            self._end("its events have ended")

    def broken(self, why: str, *, stale: bool) -> None:
        self._end(why)

    def _end(self, why: str, error: Exception | None = None) -> None:
        self._held = b""
        if not self.begun.done():
            self.begun.set_result(None)
        if not self.ended.done():
            self.ended.set_exception(error or UpstreamError(why))
