"""One try of a request at one backend."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Protocol

from enginehouse.domain.errors import RequestError, UpstreamError, UpstreamTimeout
from enginehouse.domain.route import Route
from enginehouse.relay.place import Place
from enginehouse.relay.upstream.connection import AnswerHead, Connection
from enginehouse.relay.upstream.upstream import Upstream

NEVER = float("inf")
_STALLED = "did not go on with its answer"


class Sender(Protocol):
    """The exchange that tries. ``repeatable``: its request may reach an engine twice."""

    repeatable: bool

    def outgoing(self, attempt: Attempt) -> bytes:
        """The whole request as the engine of ``attempt`` is to get it."""

    def answer(self, attempt: Attempt, body: bytes, complete: bool) -> None:
        """A piece of the answer, or just its head, which ``attempt`` keeps."""

    def lost(self, attempt: Attempt, error: RequestError) -> None:
        """The engine failed; nothing more comes."""

    def found_out(self, attempt: Attempt, error: RequestError, *, ended: bool) -> None:
        """The ``error`` that made the attempt ``find_out`` came of the engine's end, or did not."""

    def turned_away(self, attempt: Attempt, error: RequestError) -> None:
        """The request was not let through to the engine, which says nothing of that; nothing more comes."""


class Attempt:
    """Connects if it must, sends, and receives; knows the time limits of its backend.

    ``place``, where there is one, is waited for first. Whoever calls ``start`` calls ``leave`` in the end, once.
    ``deadline`` is in ``perf_counter`` seconds. ``connection`` is set while a request is under way on it.
    """

    __slots__ = (
        "_awaited",
        "_limit",
        "_sender",
        "_work",
        "connection",
        "deadline",
        "head",
        "place",
        "route",
        "sent_at",
        "upstream",
    )

    def __init__(self, sender: Sender, route: Route, upstream: Upstream) -> None:
        self._sender = sender
        self.route = route
        self.upstream = upstream
        self.place: Place | None = None
        self.head: AnswerHead | None = None
        self.connection: Connection | None = None
        self._work: asyncio.Task[None] | None = None
        self.sent_at = 0.0
        self.deadline = NEVER
        self._limit = 0.0
        self._awaited = ""

    def start(self) -> None:
        """Begin, which counts as load of the backend until ``leave``: take the place or send the request at once."""
        self.route.chosen.load.begin()
        if self.place is not None:
            self.place.take()
        else:
            self.depart()

    def depart(self) -> None:
        """Send the request, on a kept connection if there is one."""
        # A kept connection may break just when it is used, and then nobody knows whether the request arrived.
        connection = self.upstream.pool.take() if self._sender.repeatable else None
        if connection is not None:
            self._send(connection)
        else:
            self._allow(self.upstream.timeouts.connect, "could not be reached")
            self._work = asyncio.ensure_future(self._connect())

    def turned_away(self, error: RequestError) -> None:
        """There is no place for this attempt."""
        self._sender.turned_away(self, error)

    def leave(self) -> None:
        """The attempt is over."""
        self.route.chosen.load.end()
        place, self.place = self.place, None  # else the two would wait for the garbage collector together
        if place is not None:
            place.leave()

    def give_up(self) -> None:
        """Cancel whatever goes on at the engine; the sender hears no more."""
        if self._work is not None:
            self._work.cancel()
            self._work = None
        if self.connection is not None:
            self.connection.abort()
            self.connection = None

    def find_out(self, error: RequestError) -> None:
        """Find out whether ``error`` came of the engine's own end; the place is held so long."""
        self.deadline = NEVER
        self._work = asyncio.ensure_future(self._find_out(error))

    def pause(self) -> None:
        """Take no more of the answer; while nothing is read, the engine does not stall."""
        if self.connection is not None:
            self.connection.pause()
            self.deadline = NEVER

    def resume(self) -> None:
        """Go on reading."""
        if self.connection is not None:
            self.connection.resume()
            self._allow(self.upstream.timeouts.stall, _STALLED)

    def overdue(self) -> None:
        """``deadline`` has passed."""
        self.give_up()
        problem = f"Backend '{self.upstream.name}' {self._awaited} within {self._limit:g} s"
        self._sender.lost(self, UpstreamTimeout(problem))

    # --- from the connection

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        """A piece of the answer."""
        if head is not None:
            self.head = head
        if complete:
            self.connection = None
        elif body:
            self._allow(self.upstream.timeouts.stall, _STALLED)
        self._sender.answer(self, body, complete)

    def broken(self, why: str, *, stale: bool) -> None:
        """The connection broke; a stale one proves nothing against the engine."""
        self.connection = None
        if stale:
            self.depart()
        else:
            self._failed(f"broke off: {why}")

    # --- inside

    def _send(self, connection: Connection) -> None:
        self.connection = connection
        connection.send(self, self._sender.outgoing(self))
        self.sent_at = now = perf_counter()
        self._limit, self._awaited = self.upstream.timeouts.first_byte, "did not begin to answer"
        self.deadline = now + self._limit if self._limit else NEVER

    async def _connect(self) -> None:
        try:
            connection = await self.upstream.pool.connect()
        except UpstreamError as error:
            self._work = None
            self._failed(f"could not be reached: {error}")
            return
        self._work = None
        self._send(connection)

    def _failed(self, how: str) -> None:
        if self.place is not None:
            self.place.in_doubt = True
        self._sender.lost(self, UpstreamError(f"Backend '{self.upstream.name}' {how}"))

    async def _find_out(self, error: RequestError) -> None:
        assert self.place is not None
        ended = await self.place.engine_ends()
        self._work = None
        self._sender.found_out(self, error, ended=ended)

    def _allow(self, seconds: float, awaited: str) -> None:
        self._limit, self._awaited = seconds, awaited
        self.deadline = perf_counter() + seconds if seconds else NEVER
