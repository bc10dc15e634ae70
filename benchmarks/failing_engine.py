"""An engine that fails: by its path it is a ``source``, whose streams never end, or it is ``broken`` or ``unwell``.

A ``broken`` one is healthy and breaks every answer off. An ``unwell`` one breaks off the answers to probes too.
"""

from __future__ import annotations

import asyncio

_EVENT = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" a"}}]}\n\n'
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
_HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
_HALF = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + b" " * 50_000


class FailingEngine:
    """Serves in the running event loop. ``probed``: how many answers to probes were broken off."""

    def __init__(self) -> None:
        self.port = 0
        self.probed = 0
        self._more = asyncio.Event()

    async def start(self) -> None:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._server = server

    async def until_probed(self, count: int) -> None:
        """Wait until so many answers to probes were broken off."""
        while self.probed < count:
            self._more.clear()
            await self._more.wait()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                await self._answer(head, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the last one at the end of the program
        finally:
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = head.split(b" ", 2)[1]
        if path.endswith(b"/health") and not path.startswith(b"/unwell"):
            writer.write(_HEALTHY)
        elif path.startswith(b"/source") and head.startswith(b"POST"):
            writer.write(_HEAD + _EVENT * 5)
            await reader.read()  # until the gateway leaves
            raise ConnectionError
        else:
            writer.write(_HALF)
            if path.endswith(b"/health"):
                self.probed += 1
                self._more.set()
            raise ConnectionError
