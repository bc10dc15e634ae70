"""Whole requests to an engine: probes and operations."""

from __future__ import annotations

import asyncio
import contextlib

from enginehouse.domain.errors import UpstreamError, UpstreamTimeout
from enginehouse.interfaces.drivers import EngineResponse
from enginehouse.relay.heads.answer_head import AnswerHead
from enginehouse.relay.heads.headers import read_lines
from enginehouse.relay.upstream.connection import Connection
from enginehouse.relay.upstream.upstream import Upstream

_LARGEST = 16 << 20


class Client:
    """An ``EngineClient`` on the connections that live requests use."""

    def __init__(self, upstream: Upstream, timeout: float) -> None:
        self._upstream = upstream
        self._timeout = timeout

    async def request(self, method: str, path: str, body: bytes = b"") -> EngineResponse:
        """Send a request and read the whole answer. Raises ``UpstreamError``, and ``UpstreamTimeout`` if it is late."""
        try:
            return await asyncio.wait_for(self._request(method, path, body), self._timeout)
        except asyncio.TimeoutError:
            raise UpstreamTimeout(f"no answer from {self._upstream.name} in {self._timeout:g} s") from None

    async def _request(self, method: str, path: str, body: bytes) -> EngineResponse:
        pool = self._upstream.pool
        content = b"content-type: application/json\r\n" if body else b""
        length = b"content-length: %d\r\n\r\n" % len(body)
        request = self._upstream.fixed(method, path) + content + length + body
        kept = pool.take()
        if kept is not None:
            with contextlib.suppress(_Stale):
                return await _ask(kept, request)
        return await _ask(await pool.connect(), request)


async def _ask(connection: Connection, request: bytes) -> EngineResponse:
    answer = _WholeAnswer()
    connection.send(answer, request)
    try:
        return await answer.done
    finally:
        if not answer.ended:
            connection.abort()


class _Stale(Exception):
    """A kept-alive connection was closed before it was used."""


class _WholeAnswer:
    """Collects an answer."""

    def __init__(self) -> None:
        self.done: asyncio.Future[EngineResponse] = asyncio.get_running_loop().create_future()
        self.ended = False
        self._head: AnswerHead | None = None
        self._body = bytearray()

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        self._head = head or self._head
        self._body += body
        if complete or len(self._body) > _LARGEST:
            self.ended = complete
            if self._head is not None and not self.done.done():
                self.done.set_result(EngineResponse(self._head.status, read_lines(self._head.lines), bytes(self._body)))

    def broken(self, why: str, *, stale: bool) -> None:
        self.ended = True
        if not self.done.done():
            self.done.set_exception(_Stale() if stale else UpstreamError(why))
