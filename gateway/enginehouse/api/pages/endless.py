"""Answers without an end: ``GET /api/events``, and logs that are followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from enginehouse.api.doors.asgi import disconnected
from enginehouse.domain.errors import ShuttingDown
from enginehouse.telemetry.event_stream import EventStream

Pieces = AsyncGenerator[bytes, None]

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Keeps proxies from buffering the stream."""


class EndlessStreams:
    """Streams that end when their client disconnects, and all together when the gateway shuts down."""

    def __init__(self) -> None:
        self._closed = asyncio.Event()

    def close(self) -> None:
        """End every stream and refuse new ones."""
        self._closed.set()

    def answer(self, request: Request, pieces: Pieces, media_type: str) -> Response:
        """Stream ``pieces`` as they come. Raises ``ShuttingDown``."""
        if self._closed.is_set():
            raise ShuttingDown("The gateway is shutting down; connect again")
        if request.method == "HEAD":
            return Response(headers=_HEADERS, media_type=media_type)
        return _EndlessResponse(pieces, self._closed, media_type)


def event_page(events: EventStream, streams: EndlessStreams) -> BaseRoute:
    """``GET /api/events``: server-sent events until the client disconnects."""

    async def watch(request: Request) -> Response:
        return streams.answer(request, events.watch(), "text/event-stream")

    return Route("/api/events", watch)


class _EndlessResponse(StreamingResponse):
    def __init__(self, pieces: Pieces, closed: asyncio.Event, media_type: str) -> None:
        super().__init__(pieces, headers=_HEADERS, media_type=media_type)
        self._pieces = pieces
        self._closed = closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self._send_pieces(send))
        ends = {sending, asyncio.ensure_future(self._closed.wait()), asyncio.ensure_future(disconnected(receive))}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.wait(ends)
            await self._pieces.aclose()
        try:
            if not sending.cancelled():
                sending.result()
        finally:
            ends.clear()
            del sending  # a failure refers to this frame, and its task to the failure
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_pieces(self, send: Send) -> None:
        async for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
