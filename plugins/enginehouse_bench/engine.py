"""A minimal engine: a fixed answer, and streams at a fixed pace.

``python -m enginehouse_bench.engine [PORT [CHUNKS PACE]]`` prints its address and serves until it is killed. A request
with ``"stream":true`` in its body gets CHUNKS chunks, one every PACE seconds; any other gets a small JSON answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar, cast

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``, on uvloop if it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


MODEL = "bench"
CHUNKS = 50
PACE_S = 0.02

ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Hello there, how can I help?"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":8,"total_tokens":17}}'
)
MODELS = b'{"object":"list","data":[{"id":"bench","object":"model","created":1,"owned_by":"bench"}]}'
_EVENT = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":'
    b'{"content":" token"},"finish_reason":null}]}\n\n'
)


def _response(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return head % len(body) + body


_RESPONSE, _LIST = _response(ANSWER), _response(MODELS)
_CHUNK = b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT)
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_STREAM_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class _FixedEngine(asyncio.Protocol):
    def __init__(self, chunks: int, pace: float) -> None:
        self._chunks, self._pace = chunks, pace
        self._data = b""
        self._transport = cast(asyncio.Transport, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            head = self._data[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._data) < end + 4 + length:
                return
            body = self._data[end + 4 : end + 4 + length]
            self._data = self._data[end + 4 + length :]
            if b'"stream":true' in body:
                self._transport.write(_STREAM_HEAD)
                self._write_chunk(self._chunks)
            else:
                self._transport.write(_LIST if head.startswith(b"get") else _RESPONSE)

    def _write_chunk(self, left: int) -> None:
        if self._transport.is_closing():
            return
        if left:
            self._transport.write(_CHUNK)
            asyncio.get_running_loop().call_later(self._pace, self._write_chunk, left - 1)
        else:
            self._transport.write(_STREAM_END)


async def serve(port: int = 0, chunks: int = CHUNKS, pace: float = PACE_S) -> None:
    """Serve on this machine; on a free port if ``port`` is 0. ``pace`` is in seconds."""
    connection = partial(_FixedEngine, chunks, pace)
    server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", port, backlog=2048)
    print(f"listening on http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    given = (*sys.argv[1:], *("0", str(CHUNKS), str(PACE_S))[len(sys.argv) - 1 :])
    run(serve(int(given[0]), int(given[1]), float(given[2])))
