"""What the doors on ASGI's side do in moments that no network can be made to repeat."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send
from uvicorn import Config
from uvicorn.server import ServerState

from enginehouse.api.doors.asgi import Outbound
from enginehouse.api.doors.fast.web_socket_upgrade import WebSocketProtocol
from tests.support.fake_transport import FakeTransport
from tests.support.waiting import until

HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    b"sec-websocket-key: aQ8QZPsHulp+dhFE+mwEFA==\r\nsec-websocket-version: 13\r\n\r\n"
)
CLOSE = b"\x88\x82\0\0\0\0\x03\xe8"


async def accept(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


@pytest.fixture
async def socket() -> WebSocketProtocol:
    """An open WebSocket."""
    config = Config(accept, log_config=None, lifespan="off")
    config.load()
    protocol = WebSocketProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    protocol.connection_made(FakeTransport())
    protocol.data_received(HANDSHAKE)
    await until(lambda: protocol.handshake_complete)
    return protocol


async def test_a_server_stops_while_a_client_closes_its_web_socket(socket: WebSocketProtocol) -> None:
    socket.data_received(CLOSE)  # its answer is not sent yet
    socket.shutdown()
    transport = socket.transport
    assert isinstance(transport, FakeTransport)
    assert transport.written.endswith(b"\x88\x02\x03\xe8")
    assert transport.closing


async def test_a_server_that_stops_tells_the_clients_of_open_web_sockets(socket: WebSocketProtocol) -> None:
    socket.shutdown()
    transport = socket.transport
    assert isinstance(transport, FakeTransport)
    assert transport.written.endswith(b"\x88\x02\x03\xf4"), "1012: the service restarts"
    assert transport.closing


async def test_an_answer_that_begins_and_breaks_in_one_moment_has_begun() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    out = Outbound()
    out.start_sending(send)
    out.start(200, b"", 26)
    out.write(b"half")
    out.abort()
    await out.sent()
    assert [(each["type"], each.get("body")) for each in sent] == [
        ("http.response.start", None),
        ("http.response.body", b"half"),
    ]


async def test_an_answer_that_breaks_behind_another_one_that_is_not_read_yet_has_begun() -> None:
    sent: list[str] = []
    is_asked, reads = asyncio.Event(), asyncio.Event()

    async def send(message: Message) -> None:
        is_asked.set()
        await reads.wait()
        sent.append(message["type"])

    out = Outbound()
    out.start_sending(send)
    out.start(200, b"", 26)
    await is_asked.wait()
    out.abort()
    reads.set()
    await out.sent()
    assert sent == ["http.response.start"]


async def test_an_answer_that_breaks_while_the_server_waits_for_its_client_waits_no_longer() -> None:
    never, waits = asyncio.Event(), asyncio.Event()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            waits.set()
            await never.wait()

    out = Outbound()
    out.start_sending(send)
    out.start(200, b"", 26)
    out.write(b"half")
    await waits.wait()
    out.abort()
    await asyncio.wait_for(out.sent(), 10)
