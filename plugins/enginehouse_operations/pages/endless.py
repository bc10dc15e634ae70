"""Answers without an end, for pages that follow events or logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Final
from weakref import WeakKeyDictionary

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from enginehouse.errors import Overloaded, ShuttingDown
from enginehouse_operations.pages.reading import facts_of

Pieces = AsyncGenerator[bytes, None]

_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Keeps proxies from buffering the stream."""
_MOST: Final = 200
"""The most such answers of a gateway at a time: whatever happens is written to each of them."""
_open: Final = WeakKeyDictionary[asyncio.Event, int]()
"""How many there are, by the event with which their gateway stops."""


def endless(request: Request, pieces: Pieces, media_type: str) -> Response:
    """Stream ``pieces`` as they come, until the client disconnects or the gateway begins to stop.

    Raises ``ShuttingDown``, and ``Overloaded`` if there are too many streams.
    """
    closing = facts_of(request).closing
    if closing.is_set():
        raise ShuttingDown("The gateway is shutting down; connect again")
    if request.method == "HEAD":
        return Response(headers=_HEADERS, media_type=media_type)
    if _open.get(closing, 0) >= _MOST:
        raise Overloaded(f"{_MOST} streams of events and logs are open, and there may be no more: close some")
    return _EndlessResponse(pieces, closing, media_type)


class _EndlessResponse(StreamingResponse):
    def __init__(self, pieces: Pieces, closing: asyncio.Event, media_type: str) -> None:
        super().__init__(pieces, headers=_HEADERS, media_type=media_type)
        self._pieces = pieces
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _open[self._closing] = _open.get(self._closing, 0) + 1
        try:
            await self._stream(receive, send)
        finally:
            _open[self._closing] -= 1

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        sending = asyncio.ensure_future(self._send_pieces(send))
        ends = {sending, asyncio.ensure_future(self._closing.wait()), asyncio.ensure_future(_disconnected(receive))}
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


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
