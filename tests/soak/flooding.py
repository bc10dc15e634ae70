"""An engine that answers every question, and every request, with far more than anybody may keep."""

from __future__ import annotations

import asyncio
from contextlib import suppress

_IDS = b",".join(b"%d" % number for number in range(6_000))
_EVENT = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"flood","choices":[{"index":0,"delta":'
    b'{"content":""},"finish_reason":null,"token_ids":[' + _IDS + b"]}]}\n\n"
)
_STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n["
_ITEM = b'"' + b"z" * (1 << 16) + b'",'
_HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class FloodingEngine:
    """Serves in the running event loop, at ``url``. It is healthy, so that it is asked everything."""

    def __init__(self) -> None:
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                body = await reader.readexactly(length)
                if head.split(b" ", 2)[1] == b"/health":
                    writer.write(_HEALTHY)
                    continue
                stream = b'"stream":true' in body.replace(b" ", b"")
                writer.write(_STREAM if stream else _JSON)
                while True:
                    writer.write(_EVENT if stream else _ITEM)
                    await writer.drain()
        writer.close()
