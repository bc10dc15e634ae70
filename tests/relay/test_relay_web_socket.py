from __future__ import annotations

import asyncio
import contextlib
import http
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

Handler = Callable[[ServerConnection], Awaitable[None]]
_LIMIT = 5.0


async def within(awaited: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(awaited, _LIMIT)


class SocketEngine:
    """An engine that speaks WebSocket; ``handler`` is what it does with one, ``refusal`` its answer instead."""

    def __init__(self, server: Server) -> None:
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.sockets: list[ServerConnection] = []
        self.requests: list[Request] = []


Start = Callable[..., Awaitable[SocketEngine]]


@pytest.fixture
async def socket_engine() -> AsyncIterator[Start]:
    """Starts engines: ``await socket_engine(handler)``; further arguments are those of ``serve``."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(handler: Handler | None = None, refusal: Response | None = None, **more: Any) -> SocketEngine:
            async def handle(socket: ServerConnection) -> None:
                made.sockets.append(socket)
                await (handler or echo)(socket)

            def process_request(socket: ServerConnection, request: Request) -> Response | None:
                made.requests.append(request)
                return refusal

            more = {"process_request": process_request, "close_timeout": 1, **more}
            made = SocketEngine(await stack.enter_async_context(serve(handle, "127.0.0.1", 0, **more)))
            return made

        yield start


async def echo(socket: ServerConnection) -> None:
    async for message in socket:
        await socket.send(message)


async def hold(socket: ServerConnection) -> None:
    await socket.wait_closed()


@pytest.fixture
async def dial() -> AsyncIterator[Callable[..., Awaitable[ClientConnection]]]:
    """Opens WebSockets of a gateway: ``await dial(gateway, "/upstream/m/x")``."""
    async with contextlib.AsyncExitStack() as stack:

        async def open_socket(gateway: Any, path: str = "/upstream/m/", **more: Any) -> ClientConnection:
            url = f"ws://127.0.0.1:{gateway.port}{path}"
            return await stack.enter_async_context(connect(url, proxy=None, close_timeout=1, **more))

        yield open_socket


async def farewell(socket: Any) -> tuple[int | None, str | None]:
    await within(socket.wait_closed())
    return socket.close_code, socket.close_reason


# --- messages


async def test_messages_pass_both_ways_as_they_are(house: Any, socket_engine: Start, dial: Any) -> None:
    gateway = await house(await socket_engine(max_size=None), server={"max_body": 1 << 22})
    socket = await dial(gateway, max_size=None)
    for message in ("text", "", "µ\0\N{STEAM LOCOMOTIVE}", b"", b"\xff\x00", bytes(1 << 20), "x" * (1 << 20)):
        await socket.send(message)
        assert await within(socket.recv()) == message
    await socket.send([b"in ", b"pieces"])
    assert await within(socket.recv()) == b"in pieces"


async def test_an_engine_may_speak_first_and_often(house: Any, socket_engine: Start, dial: Any) -> None:
    async def count(socket: ServerConnection) -> None:
        for number in range(500):
            await socket.send(str(number))

    gateway = await house(await socket_engine(count))
    socket = await dial(gateway)
    assert [message async for message in socket] == [str(number) for number in range(500)]
    assert await farewell(socket) == (1000, "")


async def test_a_handshake_reaches_the_engine_as_a_request_does(house: Any, socket_engine: Start, dial: Any) -> None:
    served = await socket_engine()
    gateway = await house(
        served,
        backend={"models": ["a/b"], "api_key": "engines"},
        routing={"aliases": {"m": "a/b"}},
        auth={"keys": [{"name": "k", "key": "clients"}]},
    )
    headers = {"x-api-key": "clients", "cookie": "c", "x-other": "1", "x-request-id": "mine"}
    socket = await dial(gateway, "/upstream/m/v1/real%2Ftime?a=%20b&c", additional_headers=headers)
    [request] = served.requests
    assert request.path == "/v1/real%2Ftime?a=%20b&c"
    assert request.headers["authorization"] == "Bearer engines"
    assert (request.headers["x-other"], request.headers["x-request-id"]) == ("1", "mine")
    assert not {"cookie", "x-api-key"} & {name.lower() for name in request.headers}
    assert request.headers["host"] == served.url.partition("//")[2]
    answered = {name: socket.response.headers[name] for name in ("x-request-id", "x-enginehouse-backend")}
    assert answered == {"x-request-id": "mine", "x-enginehouse-backend": "a"}
    assert socket.response.headers["x-enginehouse-model"] == "a/b"
    assert socket.response.headers["x-enginehouse-reason"] == "alias"


async def test_a_bare_name_is_the_engines_root(house: Any, socket_engine: Start, dial: Any) -> None:
    served = await socket_engine()
    await dial(await house(served), "/upstream/m?q")
    assert served.requests[0].path == "/?q"


async def test_the_engine_chooses_the_subprotocol(house: Any, socket_engine: Start, dial: Any) -> None:
    def choose(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return offered[1] if offered else None

    gateway = await house(await socket_engine(select_subprotocol=choose))
    assert (await dial(gateway, subprotocols=["a", "b", "c"])).subprotocol == "b"
    assert (await dial(gateway)).subprotocol is None


async def test_pings_are_answered_on_each_hop(house: Any, socket_engine: Start, dial: Any) -> None:
    served = await socket_engine(hold)
    socket = await dial(await house(served))
    await within(await socket.ping())
    await within(await served.sockets[0].ping())


async def test_an_engine_that_takes_nothing_slows_the_client(house: Any, socket_engine: Start, dial: Any) -> None:
    gate = asyncio.Event()
    got: list[int] = []

    async def late(socket: ServerConnection) -> None:
        await gate.wait()
        got.extend([len(message) async for message in socket])

    gateway = await house(await socket_engine(late))
    socket = await dial(gateway, compression=None)
    sending = asyncio.ensure_future(send_many(socket))
    done, _ = await asyncio.wait({sending}, timeout=1)
    assert not done, "32 MiB were taken though nobody wanted them"
    gate.set()
    await within(sending)
    await socket.close()
    await gateway.quiet()
    assert got == [1 << 18] * 128


async def test_a_client_that_takes_nothing_slows_the_engine(house: Any, socket_engine: Start, dial: Any) -> None:
    sent = asyncio.Event()

    async def much(socket: ServerConnection) -> None:
        await send_many(socket)
        sent.set()

    gateway = await house(await socket_engine(much))
    socket = await dial(gateway, max_queue=1, compression=None)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(sent.wait(), 1)
    assert sum([len(message) async for message in socket]) == 32 << 20


async def send_many(socket: Any) -> None:
    for _ in range(128):
        await socket.send(bytes(1 << 18))


@pytest.mark.parametrize("side", ["client", "engine"])
async def test_a_message_of_more_than_max_body_ends_both_sides(
    house: Any, socket_engine: Start, dial: Any, side: str
) -> None:
    async def speak(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.send(b"x" * (1000 if side == "client" else 1001))
        await socket.wait_closed()

    served = await socket_engine(speak)
    gateway = await house(served, server={"max_body": 1000})
    socket = await dial(gateway)
    await socket.send("x" * (1000 if side == "engine" else 1001))
    assert (await farewell(socket))[0] == (1014 if side == "engine" else 1009)
    assert (await farewell(served.sockets[0]))[0] == 1009


# --- ends


@pytest.mark.parametrize(
    ("said", "heard"),
    [((1000, ""), (1000, "")), ((1001, "away"), (1001, "away")), ((3000, "µ"), (3000, "µ")), ((4999, "x" * 123),) * 2],
)
@pytest.mark.parametrize("first", ["client", "engine"])
async def test_a_farewell_is_passed_on(
    house: Any, socket_engine: Start, dial: Any, first: str, said: tuple[int, str], heard: tuple[int, str]
) -> None:
    served = await socket_engine(hold)
    gateway = await house(served)
    client = await dial(gateway)
    ends = [client, served.sockets[0]] if first == "client" else [served.sockets[0], client]
    await within(ends[0].close(*said))
    assert await farewell(ends[1]) == heard
    await gateway.quiet()
    assert gateway.relay.figures.series("a", "m").requests == {101: 1}


@pytest.mark.parametrize(("first", "code"), [("client", 1001), ("engine", 1014)])
async def test_a_side_that_is_just_gone_ends_the_other(
    house: Any, socket_engine: Start, dial: Any, first: str, code: int
) -> None:
    served = await socket_engine(hold)
    gateway = await house(served)
    client = await dial(gateway)
    ends = [client, served.sockets[0]] if first == "client" else [served.sockets[0], client]
    ends[0].transport.abort()
    assert (await farewell(ends[1]))[0] == code
    await gateway.quiet()


async def test_what_was_said_before_a_farewell_arrives(house: Any, socket_engine: Start, dial: Any) -> None:
    async def burst(socket: ServerConnection) -> None:
        for number in range(50):
            await socket.send(str(number))
        await socket.close(4000, "done")

    gateway = await house(await socket_engine(burst))
    socket = await dial(gateway)
    with contextlib.suppress(ConnectionClosed):
        for _ in range(9):
            await socket.send("anybody there?")
    heard = []
    with contextlib.suppress(ConnectionClosed):
        while True:
            heard.append(await within(socket.recv()))
    assert heard == [str(number) for number in range(50)]
    assert await farewell(socket) == (4000, "done")


async def test_an_engine_that_takes_nothing_for_too_long_is_given_up(
    house: Any, socket_engine: Start, dial: Any
) -> None:
    served = await socket_engine(hold)
    gateway = await house(served, timeouts={"stall": 60})
    socket = await dial(gateway, compression=None)
    sending = asyncio.ensure_future(send_many(socket))
    await asyncio.wait({sending}, timeout=0.5)
    gateway.pass_time(59)
    await asyncio.sleep(0)
    assert len(gateway.relay.live) == 1
    gateway.pass_time(61)
    assert (await farewell(socket))[0] == 1008
    sending.cancel()
    served.sockets[0].transport.abort()
    await gateway.quiet()
    assert gateway.relay.figures.series("a", "m").requests == {504: 1}


async def test_an_operator_sees_it_and_can_end_it(house: Any, socket_engine: Start, dial: Any) -> None:
    served = await socket_engine(hold)
    gateway = await house(served)
    socket = await dial(gateway, "/upstream/m/live?secret", additional_headers={"x-request-id": "mine"})
    [seen] = msgspec.json.decode((await gateway.ask(gateway.get("/api/requests"))).body)["requests"]
    assert {name: seen[name] for name in ("id", "path", "model", "phase", "replica")} == {
        "id": "mine", "path": "/upstream/m/live", "model": "m", "phase": "serving", "replica": "m@a"
    }  # fmt: skip
    assert gateway.pending() == {"a": 1}
    await gateway.ask(gateway.get("/api/requests/mine", method="DELETE"))
    assert await farewell(socket) == (1008, "The request was cancelled by an operator")
    assert (await farewell(served.sockets[0]))[0] == 1001
    await gateway.quiet()


async def test_a_stopping_gateway_goes_away(house: Any, socket_engine: Start, dial: Any) -> None:
    served = await socket_engine(hold)
    gateway = await house(served)
    socket = await dial(gateway)
    gateway.relay.refuse_new()
    await within(gateway.relay.web_sockets_ended())
    gateway.shut_down()
    assert (await farewell(socket))[0] == 1001
    assert (await farewell(served.sockets[0]))[0] == 1001
    with pytest.raises(InvalidStatus) as refused:
        await dial(gateway)
    assert refused.value.response.status_code == 503


# --- refusals


async def refusal_of(gateway: Any, dial: Any, path: str = "/upstream/m/", **more: Any) -> Response:
    with pytest.raises(InvalidStatus) as refused:
        await dial(gateway, path, **more)
    response: Response = refused.value.response
    return response


def code_of(response: Response) -> str:
    return str(msgspec.json.decode(response.body or b"")["error"]["code"])


async def test_a_refusal_has_its_true_status(
    house: Any, socket_engine: Start, dial: Any, door: str, caplog: pytest.LogCaptureFixture
) -> None:
    served = await socket_engine()
    keys = [{"name": "k", "key": "k", "models": ["m"]}, {"name": "t", "key": "t", "tokens_per_minute": 5}]
    gateway = await house(served, auth={"keys": keys})
    cases = {
        "": (401, "unauthorized"), "wrong": (401, "unauthorized"), "t": (403, "forbidden"), "k": (403, "forbidden")
    }  # fmt: skip
    for key, expected in cases.items():
        response = await refusal_of(gateway, dial, "/upstream/nope/", additional_headers={"x-api-key": key})
        assert (response.status_code, code_of(response)) == expected
        assert response.headers["x-request-id"]
    gateway = await house(served)
    response = await refusal_of(gateway, dial, "/upstream/nope/")
    assert (response.status_code, code_of(response)) == (404, "model_not_found")
    gateway.fleet.gone("a", "gone")
    response = await refusal_of(gateway, dial)
    assert (response.status_code, code_of(response)) == (503, "no_healthy_backend")
    assert door != "fast" or "handshake" not in caplog.text
    assert int(response.headers["retry-after"]) > 0
    assert served.requests == []
    await gateway.quiet()


@pytest.mark.parametrize("status", [302, 401, 404, 426, 503])
async def test_an_engines_refusal_is_passed_on(house: Any, socket_engine: Start, dial: Any, status: int) -> None:
    headers = {"location": "ws://127.0.0.1:1/x", "set-cookie": "c", "content-length": "4", "x-own": "1"}
    refusal = Response(status, http.HTTPStatus(status).phrase, headers_of(headers), b"else")
    served, other = await socket_engine(refusal=refusal), await socket_engine()
    gateway = await house(served, other, routing={"strategy": "priority_only"})
    url = f"ws://127.0.0.1:{gateway.port}/upstream/m/x"
    with pytest.raises(InvalidStatus) as refused:
        await AsItIs(url, proxy=None)
    response = refused.value.response
    assert (response.status_code, response.body) == (status, b"else")
    assert (response.headers["x-own"], response.headers["x-enginehouse-backend"]) == ("1", "a")
    assert other.requests == []
    await gateway.quiet()


class AsItIs(connect):
    def process_redirect(self, exc: Exception) -> Exception:
        return exc


def headers_of(named: dict[str, str]) -> Any:
    from websockets.datastructures import Headers

    return Headers(named)


async def test_an_unreachable_engine_is_replaced(house: Any, engine: Any, socket_engine: Start, dial: Any) -> None:
    gateway = await house(await engine(there=False), await socket_engine())
    socket = await dial(gateway)
    assert socket.response.headers["x-enginehouse-backend"] == "b"
    assert socket.response.headers["x-enginehouse-reason"] == "retry"
    assert gateway.pending() == {"a": 0, "b": 1}
    await socket.close()
    await gateway.quiet()


async def test_one_that_waits_for_an_engine_that_goes_away_is_routed_again(
    house: Any, socket_engine: Start, dial: Any, launched: Any
) -> None:
    served = await socket_engine(hold)
    gateway = await house(served)
    managed = launched(gateway, "a", concurrency=1)
    first = asyncio.ensure_future(dial(gateway))
    await managed.gets_ready()
    first_socket = await within(first)
    second = asyncio.ensure_future(dial(gateway))
    await gateway.until(managed.queue.waiting)
    [arrived] = [each.ticket.arrived for each in managed.queue.waiting()]
    managed.ends()
    await gateway.until(managed.queue.waiting)
    assert [each.ticket.arrived for each in managed.queue.waiting()] == [arrived], "it has waited all the time"
    await first_socket.close()
    await managed.gets_ready()
    socket = await within(second)
    assert socket.response.headers["x-enginehouse-backend"] == "a"
    assert gateway.relay.figures.retries == {}
    await socket.close()
    await gateway.quiet()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 101 Sure\r\n\r\n", b"SSH-2.0\r\n", b""])
async def test_an_engine_that_knows_no_websockets_is_an_error(
    house: Any, engine: Any, dial: Any, answer: bytes
) -> None:
    served = await engine()
    served.plays(answer, served.CLOSE)
    gateway = await house(served)
    response = await refusal_of(gateway, dial)
    assert (response.status_code, code_of(response)) == (502, "upstream_error")
    await gateway.quiet()


async def test_an_engine_that_answers_without_an_upgrade_is_heard(house: Any, engine: Any, dial: Any) -> None:
    served = await engine()
    served.says(b"no such thing", 404)
    response = await refusal_of(await house(served), dial)
    assert (response.status_code, response.body) == (404, b"no such thing")


async def test_an_engine_has_its_time_to_open_one(house: Any, engine: Any, dial: Any) -> None:
    silent = await engine()
    silent.plays(asyncio.Event())
    gateway = await house(silent, timeouts={"connect": 0.05, "first_byte": 0.05})
    response = await refusal_of(gateway, dial)
    assert (response.status_code, code_of(response)) == (504, "upstream_timeout")
    await silent.calls[0].closed.wait()


async def test_a_client_that_leaves_before_it_is_open_frees_the_engine(house: Any, engine: Any, dial: Any) -> None:
    silent = await engine()
    silent.plays(asyncio.Event())
    gateway = await house(silent)
    dialling = asyncio.ensure_future(dial(gateway))
    call = await silent.call()
    dialling.cancel()
    await call.closed.wait()
    await gateway.quiet()
    assert gateway.relay.figures.series("a", "m").requests == {499: 1}


async def test_limits_of_keys_hold_while_it_is_open(house: Any, socket_engine: Start, dial: Any) -> None:
    gateway = await house(await socket_engine(), auth={"keys": [{"name": "k", "key": "k", "max_concurrent": 1}]})
    shown: dict[str, Any] = {"additional_headers": {"authorization": "Bearer k"}}
    socket = await dial(gateway, **shown)
    assert (await refusal_of(gateway, dial, **shown)).status_code == 429
    await socket.close()
    await gateway.quiet()
    await dial(gateway, **shown)


@pytest.mark.parametrize(
    ("origin", "cors", "status"),
    [
        (None, [], 101),
        ("http://127.0.0.1:{port}", [], 101),
        ("http://page", [], 403),
        ("null", [], 403),
        ("http://127.0.0.1", [], 403),
        ("http://page", ["http://page"], 101),
        ("http://page", ["http://other"], 403),
        ("http://page", ["*"], 101),
    ],
)
async def test_pages_of_other_origins_need_to_be_let_in(
    house: Any, socket_engine: Start, dial: Any, origin: str | None, cors: list[str], status: int
) -> None:
    served = await socket_engine(origins=None)
    gateway = await house(served, server={"cors": cors})
    origin = origin and origin.format(port=gateway.port)
    if status == 101:
        await dial(gateway, origin=origin)
        assert served.requests[0].headers.get("origin") == origin
    else:
        response = await refusal_of(gateway, dial, origin=origin)
        assert (response.status_code, code_of(response)) == (403, "forbidden")
        assert served.requests == []


@pytest.mark.parametrize("line", [b"sec-websocket-version: 12", b"sec-websocket-key: short", b"x-long: " + b"x" * 9000])
@pytest.mark.usefixtures("only_fast")
async def test_a_handshake_that_is_none_leaves_nothing_behind(house: Any, engine: Any, line: bytes) -> None:
    served = await engine()
    gateway = await house(served)
    lines = {b"sec-websocket-version": b"13", b"sec-websocket-key": b"dGhlIHNhbXBsZSBub25jZQ=="}
    name, _, value = line.partition(b": ")
    lines[name] = value
    client = await gateway.client()
    wire = [b"connection: upgrade", b"upgrade: websocket", *(b": ".join(pair) for pair in lines.items())]
    client.send(gateway.get("/upstream/m/x", *wire))
    assert b" 101 " not in await client.rest()
    assert served.calls == []
    await gateway.quiet()


@pytest.mark.usefixtures("only_fast")
async def test_only_a_get_becomes_a_websocket(house: Any, engine: Any) -> None:
    served = await engine()
    gateway = await house(served)
    wire = (b"connection: upgrade", b"upgrade: websocket", b"sec-websocket-version: 13", b"sec-websocket-key: x")
    reply = await gateway.ask(gateway.post(b"{}", *wire, path="/upstream/m/x"))
    assert (reply.status, served.calls[0].request_line) == (200, b"POST /x HTTP/1.1")
