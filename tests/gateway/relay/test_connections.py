"""A client's connection: kept, closed, pipelined."""

from __future__ import annotations

import asyncio
import re

import pytest

from enginehouse.http.client_connection import ClientConnection
from tests.support.garbage import living, without_collector
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.stream_events import DONE, event


async def test_a_connection_is_kept_for_further_requests(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    for _ in range(3):
        reply = await client.ask(gateway.post())
        assert (reply.status, reply.header("connection")) == (200, None)
    assert (await client.ask(gateway.get("/health"))).status == 200
    assert (await client.ask(gateway.post())).status == 200


async def test_a_connection_is_closed_where_the_client_wants_it(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    reply = await client.ask(gateway.post(None, b"connection: close"))
    assert (reply.status, reply.whole, reply.header("connection")) == (200, True, "close")
    assert await client.rest() == b""


async def test_an_old_client_is_answered_and_the_connection_closed(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    reply = await client.ask(gateway.post().replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (reply.status, reply.whole, reply.header("connection")) == (200, True, "close")
    assert await client.rest() == b""


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_a_client_that_sends_no_more_gets_its_whole_answer(
    house: OpenGateway, engine: StartEngine, path: str
) -> None:
    gateway = await house(await engine())
    for _ in range(5):
        client = await gateway.client()
        client.send(gateway.get(path))
        client.send_eof()
        reply = await client.reply()
        assert (reply.status, reply.whole) == (200, True)


async def test_nothing_is_served_after_the_last_request(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    client.send(gateway.post(b"{", b"connection: close") + gateway.post())
    assert (await client.reply()).status == 400
    assert await client.rest() == b""
    await gateway.quiet()
    assert served.calls == []


async def test_a_client_that_waits_to_be_told_is_told_to_go_on(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    head, _, body = gateway.post(None, b"expect: 100-continue").partition(b"\r\n\r\n")
    for _ in range(2):
        client.send(head + b"\r\n\r\n")
        assert (await client.head()).status == 100
        client.send(body)
        assert (await client.reply()).status == 200
    assert served.calls[0].header(b"expect") == []


async def test_a_client_that_waits_to_be_told_is_not_told_to_send_in_vain(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine(), server={"max_body": 10})
    client = await gateway.client()
    client.send(gateway.post(None, b"expect: 100-continue").partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
    assert (await client.reply()).status == 413
    assert await client.rest() == b""


async def test_a_client_sends_on_undisturbed_what_is_too_large(house: OpenGateway, engine: StartEngine) -> None:
    """A reset in the middle of a large body would hide the answer from many clients."""
    gateway = await house(await engine(), server={"max_body": 10})
    client = await gateway.client()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 4000000\r\n\r\n"
    client.send(head + b"x" * 4_000_000)
    await client.drained()
    reply = await client.reply()
    assert (reply.status, reply.header("connection")) == (413, "close")
    assert await client.everything() == b""


async def test_a_client_that_sends_a_refused_body_for_ever_is_cut_off(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), server={"max_body": 10})
    client = await gateway.client()
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 20000\r\n\r\nx")
    assert (await client.reply()).status == 413
    gateway.seconds_pass(60)
    assert gateway.receiving
    client.send(b"x")
    gateway.seconds_pass(10)
    assert await client.rest() == b""


async def test_a_refused_client_that_sends_no_more_is_let_go_soon(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), server={"max_body": 10})
    client = await gateway.client()
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 20000\r\n\r\n")
    assert (await client.reply()).status == 413
    gateway.seconds_later(4.0)
    assert gateway.receiving
    gateway.seconds_later(6.0)
    assert await client.rest() == b""


async def test_a_waiting_client_in_a_pipeline_is_told_when_its_turn_comes(
    house: OpenGateway, engine: StartEngine
) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    served.plays(gate, served.answer(b'"first"'))
    client = await gateway.client()
    head, _, body = gateway.post(None, b"expect: 100-continue").partition(b"\r\n\r\n")
    client.send(gateway.post() + head + b"\r\n\r\n")
    await served.call()
    gate.set()
    assert (await client.reply()).body == b'"first"'
    assert (await client.head()).status == 100
    client.send(body)
    assert (await client.reply()).status == 200


async def test_a_client_whose_next_request_waits_is_not_cut_off(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    served.plays(gate, served.answer())
    client = await gateway.client()
    client.send(gateway.post() + gateway.post()[:-3])
    await served.call()
    gateway.seconds_pass(1000)
    gate.set()
    assert (await client.reply()).status == 200
    client.send(gateway.post()[-3:])
    assert (await client.reply()).status == 200


async def test_a_browser_of_an_allowed_origin_may_ask(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), server={"cors": ["http://page"]})
    reply = await gateway.ask(gateway.post(None, b"origin: http://page"))
    assert (reply.status, reply.header("access-control-allow-origin")) == (200, "http://page")
    assert "x-enginehouse-backend" in reply.value("access-control-expose-headers").lower()
    wish = (b"origin: http://page", b"access-control-request-method: POST")
    assert (await gateway.ask(gateway.get("/v1/chat/completions", *wish, method="OPTIONS"))).status == 200
    assert (await gateway.ask(gateway.post(None, b"origin: http://other"))).header(
        "access-control-allow-origin"
    ) is None


COLD = "/v1/models/m"


@pytest.mark.parametrize("order", ["hh", "hc", "ch", "cc", "hchc", "hhcch", "chhhc"])
@pytest.mark.parametrize("segments", [1, 7])
async def test_pipelined_requests_are_answered_in_order(
    house: OpenGateway, engine: StartEngine, order: str, segments: int
) -> None:
    served = await engine()
    gateway = await house(served)
    gates = [asyncio.Event() for _ in range(order.count("h"))]
    for n, gate in enumerate(gates):
        served.plays(gate, served.answer(b'"hot %d"' % n))
    requests = b"".join(gateway.post() if kind == "h" else gateway.get(COLD) for kind in order)
    client = await gateway.client()
    size = -(-len(requests) // segments)
    for at in range(0, len(requests), size):
        client.send(requests[at : at + size])
        await client.drained()
    for gate in gates:
        gate.set()
    bodies = [(await client.reply()).body for _ in order]
    hot = iter([b'"hot %d"' % n for n in range(len(gates))])
    assert [body if body.startswith(b'"hot') else b"cold" for body in bodies] == [
        next(hot) if kind == "h" else b"cold" for kind in order
    ]
    assert (await client.ask(gateway.post())).status == 200


async def test_a_pipelined_stream_is_whole_before_the_next_answer(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    served.streams(event(1), gate, DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True) + gateway.post())
    await client.head()
    assert await client.chunk() == event(1)
    assert len(served.calls) == 1
    gate.set()
    assert [await client.chunk(), await client.chunk()] == [DONE, b""]
    assert (await client.reply()).status == 200


@pytest.mark.parametrize("bad", [b"{", b'{"model": "unknown"}'])
async def test_very_many_pipelined_requests_are_answered(house: OpenGateway, engine: StartEngine, bad: bytes) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    served.plays(gate, served.answer())
    client = await gateway.client()
    client.send(gateway.post() + gateway.post(bad) * 500 + gateway.post())
    await client.drained()
    await served.call()
    gate.set()
    statuses = [(await client.reply()).status for _ in range(502)]
    assert statuses == [200, *[404 if b"model" in bad else 400] * 500, 200]


async def test_nonsense_after_a_request_is_refused_behind_its_answer(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    served.plays(gate, served.answer())
    client = await gateway.client()
    client.send(gateway.post() + b"NONSENSE\r\n\r\n")
    await client.drained()
    gate.set()
    text = await client.rest()
    assert re.findall(rb"HTTP/1.1 (\d+)", text) == [b"200", b"400"]
    await gateway.quiet()


async def test_a_body_in_many_segments_is_put_together(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    client = await gateway.client()
    body = b'{"model": "m", "x": "' + bytes(range(97, 123)) * 100 + b'"}'
    request = gateway.post(body)
    for at in range(0, len(request), 997):
        client.send(request[at : at + 997])
        await client.drained()
        await asyncio.sleep(0)
    assert (await client.reply()).status == 200
    assert served.calls[0].body == body


async def test_a_query_does_not_change_the_endpoint(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    reply = await gateway.ask(gateway.post(path="/v1/chat/completions?api-version=1"))
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "a")
    assert served.calls[0].request_line.startswith(b"POST /v1/chat/completions")


async def test_a_closed_connection_does_not_wait_for_the_garbage_collector(
    house: OpenGateway, engine: StartEngine
) -> None:
    with without_collector():
        gateway = await house(await engine())
        client = await gateway.client()
        assert (await client.ask(gateway.post())).status == 200
        assert living(ClientConnection) == 1
        client.close()
        await gateway.disconnected()
        await gateway.until(lambda: living(ClientConnection) == 0)


@pytest.mark.parametrize(
    ("framing", "rest"),
    [(b"content-length: 300000", b"x" * 300_000), (b"transfer-encoding: chunked", b"nonsense")],
    ids=["long", "no chunk"],
)
async def test_a_request_that_was_refused_early_gets_no_second_answer(
    house: OpenGateway, engine: StartEngine, framing: bytes, rest: bytes
) -> None:
    gateway = await house(await engine(), auth={"keys": [{"name": "a", "key": "k-a"}]})
    client = await gateway.client()
    client.send(b"POST /v1/completions?x HTTP/1.1\r\nhost: localhost\r\n" + framing + b"\r\n\r\n")
    assert (await client.reply()).status == 401
    client.send(rest)
    assert await client.rest() == b"", "the body is dropped, and then the connection closes"


async def test_a_bad_head_behind_an_early_answer_is_told(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    client.send(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (await client.reply()).status == 404
    client.send(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\nhost: b\r\n\r\n")
    assert (await client.reply()).status == 400
