"""An engine that costs almost nothing: fixed answers, and streams at a fixed pace.

``python benchmarks/engine.py PORT [TOKENS PACE]`` serves until it is killed. A request with ``"stream":true`` in its
body gets TOKENS chunks, one every PACE seconds; any other request gets a small JSON answer.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

TOKENS = 250
PACE = 0.02

ANSWER = (
    b'{"id":"c","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"Hello there, how can I help?"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":9,"completion_tokens":8,"total_tokens":17}}'
)
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
MODELS = b'{"object":"list","data":[{"id":"bench","object":"model","created":1,"owned_by":"bench"}]}'
LIST = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(MODELS), MODELS)
EVENT = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,"delta":'
    b'{"content":" token"},"finish_reason":null}]}\n\n'
)
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
STREAM_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


class Engine(asyncio.Protocol):
    def __init__(self, tokens: int, pace: float) -> None:
        self._tokens, self._pace = tokens, pace
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
                self._transport.write(STREAM_HEAD)
                self._next(self._tokens)
            else:
                self._transport.write(LIST if head.startswith(b"get") else RESPONSE)

    def _next(self, left: int) -> None:
        if self._transport.is_closing():
            return
        if left:
            self._transport.write(CHUNK)
            asyncio.get_running_loop().call_later(self._pace, self._next, left - 1)
        else:
            self._transport.write(STREAM_END)


async def serve(port: int, tokens: float = TOKENS, pace: float = PACE) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Engine(int(tokens), float(pace)), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    port, *more = sys.argv[1:]
    uvloop.run(serve(int(port), *map(float, more)))
