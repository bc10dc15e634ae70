"""A client's WebSocket: what it keeps of messages in pieces, and what it does when the server stops."""

from __future__ import annotations

import asyncio
import tracemalloc
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from enginehouse.http.admission import BodyMemory, BodyShare
from enginehouse_web_sockets import client_socket
from enginehouse_web_sockets.client_socket import ClientWebSocket, Farewell
from tests.support.fake_transport import FakeTransport
from tests.support.waiting import until

HEADERS = [
    (b"host", b"localhost"), (b"upgrade", b"websocket"), (b"connection", b"upgrade"),
    (b"sec-websocket-key", b"aQ8QZPsHulp+dhFE+mwEFA=="), (b"sec-websocket-version", b"13"),
]  # fmt: skip
CLOSE = b"\x88\x82\0\0\0\0\x03\xe8"


class Opened:
    """An open WebSocket."""

    def __init__(self) -> None:
        self.transport, self.memory = FakeTransport(), BodyMemory(0)
        self.connections: set[Any] = set()
        self.received: list[str | bytes] = []
        self.socket = ClientWebSocket(self.transport, 1 << 20, BodyShare(self.memory), self.connections)

    async def open(self) -> Opened:
        accepted = asyncio.Event()

        async def serve() -> None:
            await self.socket.accept(None, [])
            accepted.set()
            while not isinstance(message := await self.socket.receive(), Farewell):
                self.received.append(message)

        self.socket.open(b"/ws", HEADERS, b"", serve, set())
        await until(accepted.is_set)
        return self


@pytest.fixture
async def opened() -> Opened:
    return await Opened().open()


async def test_a_message_in_tiny_pieces_takes_no_more_memory_than_its_bytes(opened: Opened) -> None:
    nothing = b"\0\x80\0\0\0\0"
    tiny = b"\0\x81\0\0\0\0x"
    opened.socket.data_received(b"\2" + nothing[1:])
    tracemalloc.start()
    try:
        for _ in range(20):
            opened.socket.data_received(nothing * 500 + tiny * 500)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    opened.socket.data_received(b"\x80" + nothing[1:])
    await until(lambda: opened.received == [b"x" * 10_000])


async def test_a_client_that_pings_and_reads_nothing_is_cut_off(opened: Opened) -> None:
    ping = b"\x89\x80\0\0\0\0"
    opened.socket.data_received(ping * 5000)
    opened.socket.pause_writing()
    opened.socket.data_received(ping * 999)
    assert not opened.transport.closing
    opened.socket.data_received(ping * 2)
    assert opened.transport.closing


async def test_a_server_stops_while_a_client_closes_its_web_socket(opened: Opened) -> None:
    opened.socket.data_received(CLOSE)
    opened.socket.shutdown()
    assert opened.transport.written.endswith(b"\x88\x02\x03\xe8")
    assert opened.transport.closing


async def test_a_server_that_stops_tells_the_clients_of_open_web_sockets(opened: Opened) -> None:
    opened.socket.shutdown()
    assert opened.transport.written.endswith(b"\x88\x02\x03\xf4"), "1012: the service restarts"
    assert opened.transport.closing
    assert opened.connections == {opened.socket}
    opened.socket.connection_lost(None)
    assert not opened.connections


async def test_a_handshake_that_is_wrong_gets_an_answer_and_an_end() -> None:
    opened = Opened()

    async def serve() -> None:
        raise AssertionError

    opened.socket.open(b"/ws", HEADERS[:-1], b"", serve, set())
    assert opened.transport.written.startswith(b"HTTP/1.1 400 ")
    assert opened.transport.closing


async def test_no_timer_outlives_a_client_that_is_gone_before_its_web_socket_is_closed(opened: Opened) -> None:
    opened.transport.close()
    opened.socket.connection_lost(None)
    await opened.socket.close(Farewell(1000))
    assert opened.socket._timer is None


async def test_a_client_that_reads_nothing_and_answers_no_ping_is_cut_off(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection does not close by itself: what it was sent last is still to be sent."""
    opened.socket.pause_writing()
    sending = asyncio.ensure_future(opened.socket.send("more"))
    monkeypatch.setattr(client_socket, "_PONG_WITHIN_S", -1)
    monkeypatch.setattr(client_socket, "_CLOSE_WITHIN_S", 0)
    opened.socket._ping()
    opened.socket._ping()
    assert await opened.socket.receive() == Farewell(1006)
    await sending
    await until(lambda: opened.transport.aborted)


async def test_a_client_that_reads_no_farewell_is_cut_off(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_socket, "_CLOSE_WITHIN_S", 0)
    await opened.socket.close(Farewell(1000))
    await until(lambda: opened.transport.aborted)


async def test_a_client_that_reads_slowly_gets_all(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_socket, "_CLOSE_WITHIN_S", 0)
    left = [3000, 2000, 1000, 0, 0]
    monkeypatch.setattr(opened.transport, "get_write_buffer_size", lambda: left.pop(0))
    await opened.socket.close(Farewell(1000))
    await until(lambda: opened.transport.aborted)
    assert not left


async def test_a_client_that_reads_no_refusal_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_socket, "_CLOSE_WITHIN_S", 0)
    opened = Opened()

    async def serve() -> None:
        await opened.socket.refuse(503, [], b"not now")

    opened.socket.open(b"/ws", HEADERS, b"", serve, set())
    await until(lambda: opened.transport.aborted)


async def test_compressed_messages_are_inflated_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """They arrive together, and take a thousand times their bytes."""
    opened, taken = Opened(), asyncio.Event()
    lengths: list[int] = []

    async def serve() -> None:
        await opened.socket.accept(None, [])
        await taken.wait()
        while not isinstance(message := await opened.socket.receive(), Farewell):
            lengths.append(len(message))

    deflate = (b"sec-websocket-extensions", b"permessage-deflate; client_max_window_bits")
    opened.socket.open(b"/ws", [*HEADERS, deflate], b"", serve, set())
    await until(lambda: b"101 " in opened.transport.written)
    compress = zlib.compressobj(wbits=-12)
    messages = b""
    for _ in range(20):
        data = (compress.compress(bytes(1 << 20)) + compress.flush(zlib.Z_SYNC_FLUSH))[:-4]
        messages += b"\xc2\xfe" + len(data).to_bytes(2, "big") + bytes(4) + data
    tracemalloc.start()
    try:
        opened.socket.data_received(messages + CLOSE)
        assert tracemalloc.get_traced_memory()[0] < 6 << 20
    finally:
        tracemalloc.stop()
    assert not opened.transport.reads
    held: list[int] = []
    monkeypatch.setattr(opened.socket, "_share", SimpleNamespace(hold=held.append))
    taken.set()
    await until(lambda: opened.transport.written.endswith(b"\x88\x02\x03\xe8"))
    assert lengths == [1 << 20] * 20
    assert max(held) < 6 << 20, "what its receiver has done with counts no longer"


async def test_a_client_whose_messages_nobody_takes_any_more_can_still_close() -> None:
    idle = Opened()

    async def serve() -> None:
        await idle.socket.accept(None, [])

    idle.socket.open(b"/ws", HEADERS, b"", serve, set())
    idle.socket.data_received(b"\x81\x81\0\0\0\0x" * 2000 + CLOSE)
    await until(lambda: idle.transport.closing)
    assert idle.transport.written.endswith(b"\x88\x02\x03\xe8")
