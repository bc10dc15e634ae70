"""``GET /api/history``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway

TIMINGS = b'"timings":{"cache_n":3,"prompt_n":4,"prompt_per_second":80.5,"predicted_n":2,"predicted_per_second":40.25'


def rows(reply: RawResponse) -> list[dict[str, Any]]:
    assert reply.status == 200
    found: list[dict[str, Any]] = msgspec.json.decode(reply.body)["requests"]
    return found


async def test_requests_are_remembered_when_they_have_ended(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    usage = b'"usage":{"prompt_tokens":7,"completion_tokens":2}'
    served.plays(served.answer(b'{"id":"x",%s,%s,"draft_n":9,"draft_n_accepted":5}}' % (usage, TIMINGS)))
    client = await gateway.client()
    headers = b"x-request-id: mine\r\nuser-agent: me\r\nx-session-id: s1"
    assert (await client.ask(gateway.post(None, headers))).status == 200
    assert (await client.ask(gateway.post({"model": "unknown"}))).status == 404
    refused, told = rows(await gateway.ask(gateway.get("/api/history")))
    assert (refused["asked"], refused["code"], refused["status"]) == ("unknown", "model_not_found", 404)
    assert (told["id"], told["model"], told["status"], told["number"]) == ("mine", "m", 200, 1)
    assert (told["agent"], told["session"], told["address"]) == ("me", "s1", "127.0.0.1")
    assert (told["tokens_in"], told["tokens_out"]) == (7, 2)
    assert (told["prefill_rate"], told["decode_rate"]) == (80.5, 40.25)
    assert (told["tokens_drafted"], told["tokens_accepted"]) == (9, 5)


async def test_a_request_that_has_ended_is_shown_with_its_decision(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    for identity, model in (("served", "m"), ("refused", "unknown")):
        await client.ask(gateway.post({"model": model}, b"x-request-id: " + identity.encode()))
    served = msgspec.json.decode((await gateway.ask(gateway.get("/api/requests/served"))).body)
    assert (served["id"], served["phase"], served["status"], len(served["attempts"])) == ("served", "done", 200, 1)
    assert served["decision"]["chosen"] == served["attempts"][0]["replica"]
    refused = msgspec.json.decode((await gateway.ask(gateway.get("/api/requests/refused"))).body)
    assert (refused["phase"], refused["code"]) == ("failed", "model_not_found")
    assert refused["decision"]["error"]["code"] == "model_not_found"
    assert (await gateway.ask(gateway.get("/api/requests/none"))).status == 404


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [3, 2, 1]),
        ("limit=1", [3]),
        ("model=m", [3, 1]),
        ("status=404", [2]),
        ("status=2xx", [3, 1]),
        ("after=2", [3]),
        ("key=nobody", []),
    ],
)
async def test_the_query_chooses(house: OpenGateway, engine: StartEngine, query: str, expected: list[int]) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    for model in ("m", "unknown", "m"):
        await client.ask(gateway.post({"model": model}))
    found = rows(await gateway.ask(gateway.get(f"/api/history?{query}")))
    assert [row["number"] for row in found] == expected


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "status=teapot", "after=-1", "nothing=1"])
async def test_another_query_is_refused(house: OpenGateway, engine: StartEngine, query: str) -> None:
    gateway = await house(await engine())
    assert (await gateway.ask(gateway.get(f"/api/history?{query}"))).code == "invalid_request"


async def test_models_have_figures(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    client = await gateway.client()
    assert (await client.ask(gateway.post())).status == 200
    reply = await gateway.ask(gateway.get("/api/history/models"))
    [figures] = msgspec.json.decode(reply.body)["models"]
    assert (figures["model"], figures["requests"], figures["success"]) == ("m", 1, 1.0)
    assert figures["duration_ms_p95"] > 0
