"""What every answer has, whoever gives it, and what pages take."""

from __future__ import annotations

import asyncio
from email.utils import parsedate_to_datetime
from time import time

import pytest

from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway

KEYS = {"keys": [{"name": "a", "key": "k-a"}]}
LARGE = 9 << 20


@pytest.mark.parametrize(
    "path", ["/health", "/nowhere", "/v1/completions", "/v1/completions?a=b", "/upstream/m/x", "/v1/chat/completions"]
)
async def test_every_answer_has_one_date(house: OpenGateway, engine: StartEngine, path: str) -> None:
    served = await engine()
    served.otherwise((served.answer(b"{}", 200, b"date: Mon, 01 Jan 2001 00:00:00 GMT"),))
    gateway = await house(served)
    for request in (gateway.post(path=path), gateway.get(path), gateway.post(b"{", path=path)):
        reply = await gateway.ask(request)
        date = reply.value("date")  # fails if there are two
        assert abs(parsedate_to_datetime(date).timestamp() - time()) < 100


async def test_what_is_no_http_is_refused_with_a_date(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(b"nonsense\r\n\r\n")
    assert reply.status == 400
    assert reply.header("date")


@pytest.mark.parametrize("path", ["/api/requests/x/move", "/api/explain/route", "/api/keys"])
@pytest.mark.parametrize("chunked", [False, True], ids=["length", "chunks"])
async def test_a_page_for_operators_takes_no_endless_body(
    house: OpenGateway, engine: StartEngine, path: str, chunked: bool
) -> None:
    gateway = await house(await engine(), server={"max_body": 64 << 20})
    client = await gateway.client()
    if chunked:
        client.send(gateway.get(path, b"transfer-encoding: chunked", method="POST"))
        piece = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    else:
        client.send(gateway.get(path, b"content-length: %d" % (64 << 20), method="POST"))
        piece = b" " * (1 << 20)
    answer = asyncio.ensure_future(client.reply())
    for _ in range(64):
        if answer.done():
            break
        client.send(piece)
        await client.drained()
        assert gateway.held <= LARGE
    assert (await answer).status == 413
    client.close()


async def test_a_request_that_crosses_the_end_of_its_connection_is_answered(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    assert (await client.ask(gateway.post())).status == 200
    gateway.refuse_new()
    gateway.shut_down()
    reply = await client.ask(gateway.post())
    assert (reply.status, reply.code, reply.header("connection")) == (503, "shutting_down", "close")
    assert await client.rest() == b""


async def test_an_idle_connection_closes_when_the_gateway_stops(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    assert (await client.ask(gateway.post())).status == 200
    gateway.shut_down()
    assert await client.rest() == b""
