"""A connection of the gateway to an engine of a replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

_ANSWER = b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class Asked(msgspec.Struct):
    """A request for a completion, as far as an engine of a replay reads it.

    ``prompt`` is the number of a request of the trace, then the tokens of its answer that other engines have made.
    ``follows``: an engine's request that has been moved here.
    """

    prompt: list[int]
    max_tokens: int = 16
    stream: bool = False
    return_token_ids: bool = False
    kv_transfer_params: dict[str, Any] | None = None
    follows: str = ""


read_body = msgspec.json.Decoder(Asked).decode


class PlayedModels(msgspec.Struct, frozen=True):
    """The constant facts of an engine. ``concurrency``: how many requests it works on at once."""

    models: Sequence[str]
    context_length: int
    concurrency: int

    def page(self, path: str) -> bytes | None:
        """A page of the facts, as the ``sim`` driver asks for it; ``None`` for any other."""
        if path == "/health":
            return b""
        if path == "/v1/models":
            listed = [{"id": name, "max_model_len": self.context_length} for name in self.models]
            return msgspec.json.encode({"data": listed})
        if path == "/server_info":
            return b'{"vllm_config":{"scheduler_config":{"max_num_seqs":%d}}}' % self.concurrency
        return None


class HttpRequest(msgspec.Struct, frozen=True):
    """A request as it stands on the wire. ``id``: of the client's request; empty for questions of the gateway's own."""

    path: str
    id: str
    body: bytes


class Reader(Protocol):
    """The sender of the answer that a connection waits for."""

    def resumed(self) -> None:
        """The gateway reads on."""

    def paused(self) -> None:
        """The gateway is about to read no more for now."""

    def left(self) -> None:
        """The gateway has closed the connection."""


class PlayedConnection(asyncio.Transport):
    """The engine's end of a connection, and the gateway's transport to it.

    ``serve`` gets each request. ``reader``: the sender of the current answer. ``is_paused``: the gateway does not read.
    """

    def __init__(
        self,
        protocol: asyncio.Protocol,
        serve: Callable[[PlayedConnection, HttpRequest], None],
        lost: Callable[[PlayedConnection], None],
    ) -> None:
        super().__init__()
        self.reader: Reader | None = None
        self.is_paused = False
        self._protocol = protocol
        self._serve = serve
        self._lost = lost
        self._is_closing = False
        self._connected_on = asyncio.get_running_loop()

    # --- for the engine

    def send(self, data: bytes) -> None:
        if not self._is_closing:
            self._protocol.data_received(data)

    def answer(self, status: int, body: bytes) -> None:
        self.send(_ANSWER % (status, len(body), body))

    def break_off(self) -> None:
        """Close as a process does that is killed."""
        if not self._is_closing:
            self._is_closing = True
            self.reader = None
            self._protocol.connection_lost(ConnectionResetError("the engine was killed"))

    # --- for the gateway

    def write(self, data: bytes | bytearray | memoryview) -> None:
        head, _, body = bytes(data).partition(b"\r\n\r\n")
        id = head.partition(b"x-request-id: ")[2].partition(b"\r\n")[0]
        self._serve(self, HttpRequest(head.split(b" ", 2)[1].decode(), id.decode(), body))

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        reader, self.reader = self.reader, None
        if reader is not None:
            reader.left()
        self._lost(self)
        if not self._connected_on.is_closed():  # the replay is over, and the collector drops what still ran
            self._connected_on.call_soon(self._protocol.connection_lost, None)

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        if self.reader is not None:
            self.reader.paused()
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False
        if self.reader is not None:
            self.reader.resumed()
