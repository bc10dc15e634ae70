from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import msgspec
import pytest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from enginehouse.domain.usage import AuditEntry
from enginehouse.http.admission import Admission
from enginehouse.http.guarded_pages import OperatorPages
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.stream_events import DONE, event


def read(reply: RawResponse) -> Any:
    assert reply.status == 200
    return msgspec.json.decode(reply.body)


async def test_live_requests_are_listed(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, routing={"aliases": {"gpt-4": "m"}})
    served.plays(gate, served.answer())
    client = await gateway.client()
    client.send(gateway.post({"model": "gpt-4"}, b"x-request-id: mine"))
    await served.call()
    [told] = read(await gateway.ask(gateway.get("/api/requests")))["requests"]
    assert told.pop("age_ms") >= 0
    assert told == {
        "id": "mine", "path": "/v1/chat/completions", "model": "gpt-4", "phase": "serving",
        "progress": None, "caller": None, "user": None, "address": "127.0.0.1", "position": None,
        "replica": "m@a", "waits_for": [], "moves": 0, "output_tokens": None, "stays": "its answer has not begun",
    }  # fmt: skip
    assert read(await gateway.ask(gateway.get("/api/status")))["requests"] == 1
    gate.set()
    assert (await client.reply()).status == 200
    assert read(await gateway.ask(gateway.get("/api/requests"))) == {"requests": []}


async def test_a_waiting_request_can_be_cancelled(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(None, b"x-request-id: mine"))
    call = await served.call()
    assert read(await gateway.ask(gateway.get("/api/requests/mine", method="DELETE"))) == {
        "cancelled": "mine",
        "requests": 1,
    }
    reply = await client.reply()
    assert (reply.status, reply.code) == (499, "cancelled")
    await call.closed.wait()
    again = await gateway.ask(gateway.get("/api/requests/mine", method="DELETE"))
    assert (again.status, again.code) == (404, "not_found")
    assert (await client.ask(gateway.post())).status == 200


async def test_all_requests_of_an_id_are_cancelled(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    clients = [await gateway.client() for _ in range(3)]
    for number, (client, name) in enumerate(zip(clients, (b"mine", b"mine", b"other"), strict=True)):
        served.plays(asyncio.Event(), served.answer())
        client.send(gateway.post(None, b"x-request-id: " + name))
        await served.call(number)
    assert (await gateway.ask(gateway.get("/api/requests/mine", method="DELETE"))).status == 200
    assert [(await client.reply()).code for client in clients[:2]] == ["cancelled", "cancelled"]
    assert sum(len(relay.live) for relay in gateway.relays) == 1
    assert (await gateway.ask(gateway.get("/api/requests/other", method="DELETE"))).status == 200
    assert (await clients[2].reply()).code == "cancelled"


async def test_a_stream_can_be_cancelled(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(event(), asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(None, b"x-request-id: mine", stream=True))
    await client.head()
    await client.chunk()
    await gateway.ask(gateway.get("/api/requests/mine", method="DELETE"))
    assert (await client.chunk()).startswith(b"event: error\ndata: ")
    assert await client.chunk() == b""
    await served.calls[0].closed.wait()


async def test_the_tokens_of_a_stream_are_counted_while_it_runs(house: OpenGateway, engine: StartEngine) -> None:
    """Of one that nothing can continue, too: only its events are counted."""
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    served.streams(event(), event(), event(), gate, DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(None, b"x-request-id: mine", stream=True))
    await client.head()
    seen = None
    while not seen:
        [told] = read(await gateway.ask(gateway.get("/api/requests")))["requests"]
        seen = told["output_tokens"]
    assert seen <= 3
    assert told["stays"]
    gate.set()
    while await client.chunk():
        pass


async def test_new_requests_are_refused_while_live_ones_finish(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    served.streams(event(), gate, DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    await client.chunk()
    gateway.refuse_new()
    refused = await gateway.ask()
    assert (refused.status, refused.code) == (503, "shutting_down")
    assert refused.header("retry-after")
    assert (await gateway.ask(gateway.get("/ready"))).status == 503
    assert (await gateway.ask(gateway.get("/health"))).status == 200
    gate.set()
    assert [await client.chunk(), await client.chunk()] == [DONE, b""]


async def test_requests_that_still_run_at_the_end_are_cancelled(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(event(), asyncio.Event())
    served.plays(asyncio.Event())
    streaming, waiting = await gateway.client(), await gateway.client()
    streaming.send(gateway.post(stream=True))
    await streaming.head()
    await streaming.chunk()
    waiting.send(gateway.post())
    await served.call(1)
    for relay in gateway.relays:
        relay.close()
    last = await streaming.chunk()
    assert last.startswith(b"event: error\ndata: ")
    assert b"shutting_down" in last
    assert await streaming.chunk() == b""
    reply = await waiting.reply()
    assert (reply.status, reply.code) == (503, "shutting_down")
    for call in served.calls:
        await call.closed.wait()


async def test_kept_connections_are_closed_at_the_end(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    await gateway.ask()
    assert not served.connections[0].closed.is_set()
    for relay in gateway.relays:
        relay.close()
    await served.connections[0].closed.wait()


async def test_a_server_that_stops_closes_idle_connections_and_finishes_the_rest(
    house: OpenGateway, engine: StartEngine
) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    fresh, idle, busy = [await gateway.client() for _ in range(3)]
    await idle.ask(gateway.post())
    served.streams(event(), gate, DONE, served.END)
    busy.send(gateway.post(stream=True))
    await busy.head()
    await busy.chunk()
    gateway.shut_down()
    assert [await fresh.rest(), await idle.rest()] == [b"", b""]
    gate.set()
    assert [await busy.chunk(), await busy.chunk()] == [DONE, b""]
    assert await busy.rest() == b""


async def test_a_request_that_is_cancelled_before_it_is_whole_reaches_no_engine(house: Any, engine: Any) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    form = b"content-type: multipart/form-data; boundary=b"
    request = gateway.post(None, b"x-request-id: mine", form, path="/v1/audio/transcriptions")
    client.send(request.replace(b"content-length: 13", b"content-length: 9000000")[:-5])
    await gateway.until(lambda: gateway.relay.live)
    assert (await gateway.ask(gateway.get("/api/requests/mine", method="DELETE"))).status == 200
    reply = await client.reply()
    assert (reply.status, reply.code) == (499, "cancelled")
    assert not served.calls


async def test_an_operators_act_leaves_a_line(
    house: OpenGateway, engine: StartEngine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "enginehouse.operators")
    keys = [{"name": "ops", "key": "ops", "admin": True}]
    gateway = await house(await engine(), auth={"keys": keys})
    for path in ("/api/backends/a/drain", "/api/backends/none/drain"):
        await gateway.ask(gateway.get(path, b"x-api-key: ops", b"content-length: 0", method="POST"))
    await gateway.ask(gateway.get("/api/status", b"x-api-key: ops"))
    assert [record.getMessage() for record in caplog.records if record.name == "enginehouse.operators"] == [
        "Operator (key ops, from 127.0.0.1): POST /api/backends/a/drain: 200",
        "Operator (key ops, from 127.0.0.1): POST /api/backends/none/drain: 404",
    ]


async def test_the_name_of_an_operator_begins_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "enginehouse.operators")
    noted: list[AuditEntry] = []
    name = "jwt/a\nOperator (key root, from 127.0.0.1)"
    admission = SimpleNamespace(admit_caller=None, admit_operator=lambda headers: name)
    page = Route("/api/act", lambda request: Response(), methods=["POST"])
    pages = OperatorPages(cast(Admission, admission), [page], noted.append)
    scope: Scope = {"type": "http", "method": "POST", "path": "/api/act", "headers": [], "client": None}
    await pages.handle(scope, AsyncMock(), AsyncMock())
    assert "\n" not in caplog.messages[0]
    assert noted[0].who == name
