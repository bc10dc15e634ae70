"""WebSockets that are open: their messages and their ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from websockets.asyncio.connection import Connection
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from enginehouse_web_sockets import engine_socket
from tests.support.served_gateway import OpenGateway
from tests.support.waiting import settled, until, within
from tests.support.web_sockets import Dial, StartSocketEngine, accepted, farewell, hold

# --- messages


async def test_messages_pass_both_ways_as_they_are(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    gateway = await house(await socket_engine(max_size=None), server={"max_body": 1 << 22})
    socket = await dial(gateway, max_size=None)
    for message in ("text", "", "µ\0\N{STEAM LOCOMOTIVE}", b"", b"\xff\x00", bytes(1 << 20), "x" * (1 << 20)):
        await socket.send(message)
        assert await within(socket.recv()) == message
    await socket.send([b"in ", b"pieces"])
    assert await within(socket.recv()) == b"in pieces"


async def test_what_is_held_of_messages_counts_as_bodies_do(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    gateway = await house(await socket_engine(), server={"max_body": 1 << 20, "max_body_memory": 1 << 20})
    one, other = await dial(gateway), await dial(gateway, compression=None)

    async def parts() -> AsyncIterator[bytes]:
        yield bytes(600_000)
        await ends.wait()

    ends = asyncio.Event()
    sending = asyncio.ensure_future(one.send(parts()))
    await until(lambda: gateway.held >= 600_000)
    with contextlib.suppress(ConnectionClosed):
        await other.send(bytes(600_000))
    assert (await farewell(other))[0] == 1013
    await until(lambda: gateway.held < 700_000)
    ends.set()
    await within(sending)
    assert await within(one.recv()) == bytes(600_000)
    await until(lambda: gateway.held == 0)
    await one.send("next")
    assert await within(one.recv()) == "next"


async def test_an_engine_may_speak_first_and_often(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    async def count(socket: ServerConnection) -> None:
        for number in range(500):
            await socket.send(str(number))

    gateway = await house(await socket_engine(count))
    socket = await dial(gateway)
    assert [message async for message in socket] == [str(number) for number in range(500)]
    assert await farewell(socket) == (1000, "")


async def test_a_handshake_reaches_the_engine_as_a_request_does(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
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
    answered = {name: accepted(socket).headers[name] for name in ("x-request-id", "x-enginehouse-backend")}
    assert answered == {"x-request-id": "mine", "x-enginehouse-backend": "a"}
    assert accepted(socket).headers["x-enginehouse-model"] == "a/b"
    assert accepted(socket).headers["x-enginehouse-reason"] == "alias"


@pytest.mark.parametrize("named", ["m", "alias"])
async def test_realtime_goes_to_an_engine_of_the_model_that_its_query_names(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, named: str
) -> None:
    served = await socket_engine()
    gateway = await house(served, backend={"models": {"m": {"upstream": "there"}}}, routing={"aliases": {"alias": "m"}})
    socket = await dial(gateway, f"/v1/realtime?model={named}&intent=a%20b")
    assert served.requests[0].path == "/v1/realtime?model=there&intent=a+b"
    await socket.send('{"type": "session.update"}')
    assert await within(socket.recv()) == '{"type": "session.update"}'
    assert [each.endless for each in gateway.relay.live] == [True]


@pytest.mark.parametrize(("query", "status"), [("", 400), ("?model=", 400), ("?model=other", 404)])
async def test_realtime_without_a_known_model_is_refused(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, query: str, status: int
) -> None:
    gateway = await house(await socket_engine())
    with pytest.raises(InvalidStatus) as refused:
        await dial(gateway, f"/v1/realtime{query}")
    assert refused.value.response.status_code == status


async def test_a_browser_offers_its_key_as_a_subprotocol(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    served = await socket_engine(subprotocols=[Subprotocol("realtime")])
    gateway = await house(served, auth={"keys": [{"name": "k", "key": "sk-1"}]})
    offered = [Subprotocol("realtime"), Subprotocol("openai-insecure-api-key.sk-1")]
    socket = await dial(gateway, "/v1/realtime?model=m", subprotocols=offered)
    assert socket.subprotocol == "realtime"
    assert "sk-1" not in str(served.requests[0].headers)
    with pytest.raises(InvalidStatus) as refused:
        await dial(gateway, "/v1/realtime?model=m", subprotocols=[Subprotocol("openai-insecure-api-key.sk-2")])
    assert refused.value.response.status_code == 401


async def test_a_bare_name_is_the_engines_root(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    served = await socket_engine()
    await dial(await house(served), "/upstream/m?q")
    assert served.requests[0].path == "/?q"


async def test_the_engine_chooses_the_subprotocol(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    def choose(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
        return offered[1] if offered else None

    gateway = await house(await socket_engine(select_subprotocol=choose))
    assert (await dial(gateway, subprotocols=["a", "b", "c"])).subprotocol == "b"
    assert (await dial(gateway)).subprotocol is None


async def test_pings_are_answered_on_each_hop(house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial) -> None:
    served = await socket_engine(hold)
    socket = await dial(await house(served))
    assert await within(await socket.ping()) >= 0, "the seconds until the pong"
    assert await within(await served.sockets[0].ping()) >= 0


async def test_an_engine_that_takes_nothing_slows_the_client(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    gate = asyncio.Event()
    got: list[int] = []

    async def late(socket: ServerConnection) -> None:
        await gate.wait()
        got.extend([len(message) async for message in socket])

    gateway = await house(await socket_engine(late))
    socket = await dial(gateway, compression=None)
    sent: list[int] = []
    sending = asyncio.ensure_future(send_many(socket, sent))
    await settled(lambda: len(sent))
    assert 0 < len(sent) < 128, "32 MiB were taken though the other side took none"
    gate.set()
    await within(sending)
    await socket.close()
    await gateway.quiet()
    assert got == [1 << 18] * 128


async def test_a_client_that_takes_nothing_slows_the_engine(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    sent: list[int] = []

    async def much(socket: ServerConnection) -> None:
        await send_many(socket, sent)

    gateway = await house(await socket_engine(much))
    socket = await dial(gateway, max_queue=1, compression=None)
    await settled(lambda: len(sent))
    assert 0 < len(sent) < 128
    assert sum([len(message) async for message in socket]) == 32 << 20


async def send_many(socket: Connection, sent: list[int]) -> None:
    for _ in range(128):
        await socket.send(bytes(1 << 18))
        sent.append(1 << 18)


@pytest.mark.parametrize("side", ["client", "engine"])
async def test_a_message_of_more_than_max_body_ends_both_sides(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, side: str
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


async def test_a_changed_max_body_holds_for_new_web_sockets(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    gateway = await house(await socket_engine(), server={"max_body": 2000})
    gateway.gateway.admission.max_body = 1000
    socket = await dial(gateway)
    await socket.send("x" * 1500)
    assert (await farewell(socket))[0] == 1009


# --- ends


@pytest.mark.parametrize(
    ("said", "heard"),
    [((1000, ""), (1000, "")), ((1001, "away"), (1001, "away")), ((3000, "µ"), (3000, "µ")), ((4999, "x" * 123),) * 2],
)
@pytest.mark.parametrize("first", ["client", "engine"])
async def test_a_farewell_is_passed_on(
    house: OpenGateway,
    socket_engine: StartSocketEngine,
    dial: Dial,
    first: str,
    said: tuple[int, str],
    heard: tuple[int, str],
) -> None:
    served = await socket_engine(hold)
    gateway = await house(served)
    client = await dial(gateway)
    ends = [client, served.sockets[0]] if first == "client" else [served.sockets[0], client]
    await within(ends[0].close(*said))
    assert await farewell(ends[1]) == heard
    await gateway.quiet()
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(101, "match"): 1}


@pytest.mark.parametrize(("first", "code"), [("client", 1001), ("engine", 1014)])
async def test_a_side_that_breaks_off_ends_the_other(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, first: str, code: int
) -> None:
    served = await socket_engine(hold)
    gateway = await house(served)
    client = await dial(gateway)
    ends = [client, served.sockets[0]] if first == "client" else [served.sockets[0], client]
    ends[0].transport.abort()
    assert (await farewell(ends[1]))[0] == code
    await gateway.quiet()


async def test_an_engine_hears_at_once_that_the_client_of_its_many_messages_has_left(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_socket, "_FAREWELL_S", 3600)
    sent: list[int] = []

    async def much(socket: ServerConnection) -> None:
        await send_many(socket, sent)

    served = await socket_engine(much)
    gateway = await house(served)
    client = await dial(gateway, max_queue=1, compression=None)
    await settled(lambda: len(sent))
    client.transport.abort()
    assert (await farewell(served.sockets[0]))[0] == 1001
    await gateway.quiet()


async def test_what_was_said_before_a_farewell_arrives(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
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


async def test_an_engine_that_takes_nothing_for_too_long_is_cancelled(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    served = await socket_engine(hold)
    gateway = await house(served, timeouts={"stall": 60})
    socket = await dial(gateway, compression=None)
    sent: list[int] = []
    sending = asyncio.ensure_future(send_many(socket, sent))
    await settled(lambda: len(sent))
    gateway.pass_time(59)
    await asyncio.sleep(0)
    assert len(gateway.relay.live) == 1
    gateway.pass_time(61)
    assert (await farewell(socket))[0] == 1008
    sending.cancel()
    served.sockets[0].transport.abort()
    await gateway.quiet()
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(504, "match"): 1}


async def test_an_operator_sees_it_and_can_end_it(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
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


async def test_a_stopping_gateway_goes_away(house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial) -> None:
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
