"""The handshakes of WebSockets: which engine they reach, and how they are refused."""

from __future__ import annotations

import asyncio
import errno
import http
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.datastructures import Headers
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from enginehouse import ReplicaState
from enginehouse.relay.retries import AT_LEAST
from enginehouse_web_sockets import engine_socket
from tests.support.launched_engine import Launch
from tests.support.own_address import OWN_ADDRESS
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.waiting import within
from tests.support.web_sockets import Dial, StartSocketEngine, accepted, code_of, hold, refusal_of


async def test_a_refusal_has_its_true_status(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, caplog: pytest.LogCaptureFixture
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
    gateway.fleet.mark_unhealthy("a", "gone")
    response = await refusal_of(gateway, dial)
    assert (response.status_code, code_of(response)) == (503, "no_healthy_backend")
    assert "handshake" not in caplog.text
    assert int(response.headers["retry-after"]) > 0
    assert served.requests == []
    await gateway.quiet()


async def test_the_limits_of_addresses_hold(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, tmp_path: Path
) -> None:
    gateway = await house(await socket_engine(hold), server={"per_address": {"max_concurrent": 1}})
    gateway.gateway.callers.open(tmp_path)
    first = await dial(gateway)
    assert [each.state().address for each in gateway.relay.live] == ["127.0.0.1"]
    refused = await refusal_of(gateway, dial)
    assert (refused.status_code, code_of(refused)) == (429, "rate_limited")
    await first.close()
    await gateway.quiet()
    await (await dial(gateway)).close()
    await gateway.quiet()


async def test_a_model_that_is_nearly_known_is_suggested(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    gateway = await house(await socket_engine(), backend={"models": ["llama-small"]})
    response = await refusal_of(gateway, dial, "/upstream/llama-smal/x")
    assert b"llama-small" in bytes(response.body or b"")


@pytest.mark.parametrize("status", [302, 401, 404, 426, 503])
async def test_an_engines_refusal_is_passed_on(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, status: int
) -> None:
    headers = {"location": "ws://127.0.0.1:1/x", "set-cookie": "c", "content-length": "4", "x-own": "1"}
    refusal = Response(status, http.HTTPStatus(status).phrase, Headers(headers), b"else")
    served, other = await socket_engine(refusal=refusal), await socket_engine()
    gateway = await house(served, other, routing={"strategy": "priority_only"})
    url = f"ws://{OWN_ADDRESS}:{gateway.port}/upstream/m/x"
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


async def test_an_unreachable_engine_is_replaced(
    house: OpenGateway, engine: StartEngine, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    gateway = await house(await engine(there=False), await socket_engine())
    socket = await dial(gateway)
    assert accepted(socket).headers["x-enginehouse-backend"] == "b"
    assert accepted(socket).headers["x-enginehouse-reason"] == "retry"
    assert gateway.pending() == {"a": 0, "b": 1}
    await socket.close()
    await gateway.quiet()


async def test_no_engine_is_blamed_where_the_gateway_has_no_file_left(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail() -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    gateway = await house(await socket_engine(), await socket_engine())
    monkeypatch.setattr(engine_socket._Connect, "__await__", lambda _: fail().__await__())
    for _ in range(5):
        response = await refusal_of(gateway, dial)
        assert (response.status_code, code_of(response)) == (503, "overloaded")
        assert response.headers["retry-after"] == "1"
    assert [backend.last_error for backend in gateway.fleet.backends()] == [None, None]
    assert gateway.relay.context.counters.retries == {}
    monkeypatch.undo()
    await (await dial(gateway)).close()
    await gateway.quiet()


async def test_one_that_waits_for_an_engine_that_goes_away_is_routed_again(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, launched: Launch
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
    managed.exits()
    await gateway.until(managed.queue.waiting)
    assert [each.ticket.arrived for each in managed.queue.waiting()] == [arrived], "it has waited all the time"
    await first_socket.close()
    await managed.gets_ready()
    socket = await within(second)
    assert accepted(socket).headers["x-enginehouse-backend"] == "a"
    assert gateway.relay.context.counters.retries == {}
    await socket.close()
    await gateway.quiet()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 101 Sure\r\n\r\n", b"SSH-2.0\r\n", b""])
async def test_an_engine_that_knows_no_websockets_is_an_error(
    house: OpenGateway, engine: StartEngine, dial: Dial, answer: bytes
) -> None:
    served = await engine()
    served.plays(answer, served.CLOSE)
    gateway = await house(served)
    response = await refusal_of(gateway, dial)
    assert (response.status_code, code_of(response)) == (502, "upstream_error")
    await gateway.quiet()


async def test_an_engine_that_answers_without_an_upgrade_is_heard(
    house: OpenGateway, engine: StartEngine, dial: Dial
) -> None:
    served = await engine()
    served.says(b"no such thing", 404)
    response = await refusal_of(await house(served), dial)
    assert (response.status_code, response.body) == (404, b"no such thing")


async def test_an_engine_has_its_time_to_open_one(house: OpenGateway, engine: StartEngine, dial: Dial) -> None:
    silent = await engine()
    silent.plays(asyncio.Event())
    gateway = await house(silent, timeouts={"connect": 0.5, "first_byte": 0.5})
    response = await refusal_of(gateway, dial)
    assert (response.status_code, code_of(response)) == (504, "upstream_timeout")
    await silent.calls[0].closed.wait()


async def test_a_handshake_that_the_budget_does_not_repeat_says_so(
    house: OpenGateway, engine: StartEngine, dial: Dial
) -> None:
    silent = await engine()
    silent.plays(asyncio.Event())
    times = {"connect": 0.5, "first_byte": 0.5}
    gateway = await house(silent, await engine(), timeouts=times, routing={"strategy": "priority_only"})
    for _ in range(AT_LEAST):
        gateway.relay.context.budget.take(perf_counter())
    response = await refusal_of(gateway, dial)
    assert (response.status_code, code_of(response)) == (504, "upstream_timeout")
    assert b"routing.retry_budget is spent" in response.body
    assert dict(gateway.relay.context.counters.retries_refused) == {"retry": 1}
    await gateway.quiet()


async def test_a_client_that_leaves_before_it_is_open_frees_the_engine(
    house: OpenGateway, engine: StartEngine, dial: Dial
) -> None:
    silent = await engine()
    silent.plays(asyncio.Event())
    gateway = await house(silent)
    dialling = asyncio.ensure_future(dial(gateway))
    call = await silent.call()
    dialling.cancel()
    await call.closed.wait()
    await gateway.quiet()
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(499, "match"): 1}


async def test_limits_of_keys_hold_while_it_is_open(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial
) -> None:
    gateway = await house(await socket_engine(), auth={"keys": [{"name": "k", "key": "k", "max_concurrent": 1}]})
    shown = {"authorization": "Bearer k"}
    socket = await dial(gateway, additional_headers=shown)
    assert (await refusal_of(gateway, dial, additional_headers=shown)).status_code == 429
    await socket.close()
    await gateway.quiet()
    await dial(gateway, additional_headers=shown)


@pytest.mark.parametrize(
    ("origin", "cors", "status"),
    [
        (None, [], 101),
        ("http://{host}:{port}", [], 101),
        ("http://page", [], 403),
        ("null", [], 403),
        ("http://127.0.0.1", [], 403),
        ("http://page", ["http://page"], 101),
        ("http://page", ["http://other"], 403),
        ("http://page", ["*"], 101),
    ],
)
async def test_pages_of_other_origins_need_to_be_let_in(
    house: OpenGateway, socket_engine: StartSocketEngine, dial: Dial, origin: str | None, cors: list[str], status: int
) -> None:
    served = await socket_engine(origins=None)
    gateway = await house(served, server={"cors": cors})
    origin = origin and origin.format(host=OWN_ADDRESS, port=gateway.port)
    if status == 101:
        await dial(gateway, origin=origin)
        assert served.requests[0].headers.get("origin") == origin
    else:
        response = await refusal_of(gateway, dial, origin=origin)
        assert (response.status_code, code_of(response)) == (403, "forbidden")
        assert served.requests == []


@pytest.mark.parametrize("line", [b"sec-websocket-version: 12", b"sec-websocket-key: short", b"x-long: " + b"x" * 9000])
async def test_a_handshake_that_is_none_leaves_nothing_behind(
    house: OpenGateway, engine: StartEngine, line: bytes
) -> None:
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


async def test_only_a_get_becomes_a_websocket(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    wire = (b"connection: upgrade", b"upgrade: websocket", b"sec-websocket-version: 13", b"sec-websocket-key: x")
    reply = await gateway.ask(gateway.post(b"{}", *wire, path="/upstream/m/x"))
    assert (reply.status, served.calls[0].request_line) == (200, b"POST /x HTTP/1.1")


async def test_one_whose_engine_exits_is_sent_again_once_it_was_launched_anew(
    house: OpenGateway, engine: StartEngine, dial: Dial, launched: Launch
) -> None:
    served = await engine()
    gateway = await house(served)
    managed = launched(gateway, "a")
    managed.state = ReplicaState.READY
    served.plays(served.CLOSE)
    served.says(b"again", 404)
    refusal = asyncio.ensure_future(refusal_of(gateway, dial))
    await gateway.until(lambda: any(each.exit for each in managed.queue._ends.values()))
    managed.exits()
    await managed.gets_ready()
    assert ((await within(refusal)).body, len(served.calls)) == (b"again", 2)
    assert gateway.relay.context.counters.retries == {"a": 1}
    await gateway.quiet()
