"""The acknowledgements of a stream's pieces, which the kernel delays."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.aio.write_batch import batched
from enginehouse.relay.upstream.connection import Connection, delay_acknowledgements
from tests.support.at_once import AT_ONCE
from tests.support.fake_transport import FakeTransport
from tests.support.fake_upstream import KeptAnswer

QUICKACK = getattr(socket, "TCP_QUICKACK", 0)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FILE = b"HTTP/1.1 200 OK\r\ncontent-type: audio/mpeg\r\ntransfer-encoding: chunked\r\n\r\n"
PIECE = b"8\r\ndata: \n\n\r\n"

pytestmark = pytest.mark.skipif(not QUICKACK, reason="only Linux has the option")


class WithSocket(FakeTransport):
    """Has a socket, or something in its place."""

    def __init__(self, connection: Any) -> None:
        super().__init__()
        self._connection = connection

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._connection if name == "socket" else default


class FakeSocket:
    """Keeps the options that are set."""

    def __init__(self) -> None:
        self.options: list[tuple[int, int, int]] = []

    def setsockopt(self, level: int, option: int, value: int) -> None:
        self.options.append((level, option, value))


def delays(head: bytes, pieces: int) -> int:
    """How often the delay is asked for while so many pieces of an answer arrive."""
    opened = FakeSocket()
    idle: list[Connection] = []
    connection = Connection(idle.append, idle.remove, AT_ONCE, SYSTEM_CLOCK.now)
    connection.connection_made(WithSocket(opened))
    connection.send(KeptAnswer(), b"request")
    for data in [head, *[PIECE] * pieces, b"0\r\n\r\n"]:
        connection.data_received(data)
    assert idle == [connection]
    assert set(opened.options) <= {(socket.IPPROTO_TCP, QUICKACK, 0)}
    return len(opened.options)


@pytest.mark.parametrize(("pieces", "asked"), [(1, 0), (2, 1), (7, 1), (8, 2), (31, 2), (32, 3), (1000, 5)])
def test_the_delay_is_asked_for_again_and_again_in_a_stream(pieces: int, asked: int) -> None:
    assert delays(STREAM, pieces) == asked


def test_answers_that_are_no_streams_are_acknowledged_as_ever() -> None:
    assert delays(FILE, 100) == 0


def test_the_kernel_delays_the_acknowledgements_of_a_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        transport = batched(WithSocket(connection), AT_ONCE)
        assert connection.getsockopt(socket.IPPROTO_TCP, QUICKACK) == 1
        delay_acknowledgements(transport)
        assert connection.getsockopt(socket.IPPROTO_TCP, QUICKACK) == 0
