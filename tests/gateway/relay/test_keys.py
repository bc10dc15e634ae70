from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.support.fake_clock import StoppedClock
from tests.support.keys import bearer, key
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway


@pytest.mark.parametrize("line", [b"", b"authorization: Bearer wrong", b"authorization: Basic x", b"x-api-key: wrong"])
async def test_without_a_known_key_a_request_is_refused(house: OpenGateway, engine: StartEngine, line: bytes) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a")]})
    for request in (gateway.post(None, *filter(None, [line])), gateway.get("/v1/models", *filter(None, [line]))):
        reply = await gateway.ask(request)
        assert (reply.status, reply.code, reply.error["type"]) == (401, "unauthorized", "authentication_error")
        assert "wrong" not in reply.error["message"]
    assert served.calls == []


@pytest.mark.parametrize("line", [bearer("a"), b"Authorization: bearer a-secret", b"X-Api-Key: a-secret"])
async def test_a_known_key_comes_in_and_goes_no_further(house: OpenGateway, engine: StartEngine, line: bytes) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a"), key("b")]})
    assert (await gateway.ask(gateway.post(None, line))).status == 200
    assert b"secret" not in b"".join(value for _, value in served.calls[0].lines)


async def test_a_key_is_good_for_its_models(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(
        served, auth={"keys": [key("a", models=["llama*", "m"])]}, backend={"models": ["m", "llama-1", "qwen"]}
    )
    for model, status in {"m": 200, "llama-1": 200, "qwen": 403, "mm": 403}.items():
        reply = await gateway.ask(gateway.post({"model": model}, bearer("a")))
        assert reply.status == status, model
    assert (reply.code, reply.error["param"]) == ("forbidden", "model")
    listed = msgspec.json.decode((await gateway.ask(gateway.get("/v1/models", bearer("a")))).body)
    assert {model["id"] for model in listed["data"]} == {"m", "llama-1"}


async def test_operations_need_an_admin_key(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth={"keys": [key("user"), key("boss", admin=True)]})
    paths = {"GET": ["/api/status", "/api/requests", "/api/decisions"], "POST": ["/api/backends/a/undrain"]}
    for method, path in ((method, path) for method, some in paths.items() for path in some):
        for line, status in ((b"x: y", 401), (bearer("user"), 403), (bearer("boss"), 200)):
            assert (await gateway.ask(gateway.get(path, line, method=method))).status == status, (path, line)
    assert (await gateway.ask(gateway.get("/health"))).status == 200


async def test_requests_in_a_minute_are_limited(house: OpenGateway, engine: StartEngine) -> None:
    clock = StoppedClock(1000.0)
    gateway = await house(await engine(), auth={"keys": [key("a", requests_per_minute=2), key("b")]}, clock=clock)
    ask = gateway.post(None, bearer("a"))
    assert [(await gateway.ask(ask)).status for _ in range(3)] == [200, 200, 429]
    reply = await gateway.ask(ask)
    assert (reply.code, reply.error["type"]) == ("rate_limited", "rate_limit_error")
    wait = int(reply.value("retry-after"))
    assert 29 <= wait <= 31
    assert (await gateway.ask(gateway.post(None, bearer("b")))).status == 200
    clock.now += wait
    assert [(await gateway.ask(ask)).status for _ in range(2)] == [200, 429]


async def test_tokens_in_a_minute_are_limited(house: OpenGateway, engine: StartEngine) -> None:
    clock = StoppedClock(1000.0)
    gateway = await house(await engine(), auth={"keys": [key("a", tokens_per_minute=100)]}, clock=clock)
    ask = gateway.post({"prompt": "word" * 60}, bearer("a"), path="/v1/completions")
    assert [(await gateway.ask(ask)).status for _ in range(2)] == [200, 429]
    clock.now += 60
    assert (await gateway.ask(ask)).status == 200


def used(prompt: int, answer: int) -> bytes:
    return b'{"usage": {"prompt_tokens": %d, "completion_tokens": %d}}' % (prompt, answer)


async def test_the_tokens_of_answers_are_limited(house: OpenGateway, engine: StartEngine) -> None:
    clock, served = StoppedClock(1000.0), await engine()
    gateway = await house(served, auth={"keys": [key("a", tokens_per_minute=100)]}, clock=clock)
    served.says(used(10, 5000))
    ask = gateway.post(None, bearer("a"))
    assert [(await gateway.ask(ask)).status for _ in range(2)] == [200, 429]
    clock.now += 60  # 100 of the 5000 are back
    assert (await gateway.ask(ask)).status == 429
    clock.now += 50 * 60
    assert (await gateway.ask(ask)).status == 200


async def test_the_most_tokens_of_an_answer_are_reserved(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, auth={"keys": [key("a", tokens_per_minute=100)]}, clock=StoppedClock(1000.0))
    served.plays(gate, served.answer(used(10, 20)))
    client = await gateway.client()
    client.send(gateway.post({"max_tokens": 80}, bearer("a")))
    await served.call()
    ask = gateway.post({"max_completion_tokens": 60}, bearer("a"))
    assert (await gateway.ask(ask)).status == 429
    gate.set()
    assert (await client.reply()).status == 200
    assert (await gateway.ask(ask)).status == 200  # the first one needed 30 of the 80


async def test_without_a_most_the_usual_answer_is_reserved(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a", tokens_per_minute=1000)]}, clock=StoppedClock(1000.0))
    served.says(used(0, 900))
    ask = gateway.post(None, bearer("a"))
    assert (await gateway.ask(ask)).status == 200
    assert (await gateway.ask(ask)).status == 429  # a fifth of 900 is more than the 100 that are left


async def test_a_connection_survives_a_limit(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth={"keys": [key("a", requests_per_minute=1)]}, clock=StoppedClock(1000.0))
    client = await gateway.client()
    assert [(await client.ask(gateway.post(None, bearer("a")))).status for _ in range(3)] == [200, 429, 429]


@pytest.mark.parametrize("how", ["answer", "break", "leave", "cancel"])
async def test_a_place_is_free_again_however_its_request_ended(
    house: OpenGateway, engine: StartEngine, how: str
) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a", max_concurrent=1, admin=True)]})
    gate = asyncio.Event()
    served.plays(gate, served.answer() if how == "answer" else served.RESET)
    client = await gateway.client()
    client.send(gateway.post(None, bearer("a"), b"x-request-id: first"))
    await served.call()
    refused = await gateway.ask(gateway.post(None, bearer("a")))
    assert (refused.status, refused.code) == (429, "rate_limited")
    if how == "leave":
        client.close()
    elif how == "cancel":
        assert (await gateway.ask(gateway.get("/api/requests/first", bearer("a"), method="DELETE"))).status == 200
    else:
        gate.set()
    await gateway.quiet()
    assert (await gateway.ask(gateway.post(None, bearer("a")))).status == 200


async def test_a_pipelined_request_does_not_wait_beside_the_one_before(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a", max_concurrent=1)]})
    client = await gateway.client()
    client.send(gateway.post(None, bearer("a")) * 3)
    assert [(await client.reply()).status for _ in range(3)] == [200, 200, 200]


async def test_a_refused_request_does_not_hold_a_place(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth={"keys": [key("a", max_concurrent=1)]})
    for request in ({"model": "unknown"}, b"{"):
        await gateway.ask(gateway.post(request, bearer("a")))
    assert (await gateway.ask(gateway.post(None, bearer("a")))).status == 200


@pytest.mark.parametrize("body", [b'{"model":"n","model":"m"}', b'{"model":"m","Model":"n"}'])
async def test_a_key_for_some_models_names_one_in_one_way(house: OpenGateway, engine: StartEngine, body: bytes) -> None:
    served = await engine()
    keys = [key("some", models=["m*"], max_concurrent=1), key("all")]
    gateway = await house(served, auth={"keys": keys})
    for _ in range(2):
        reply = await gateway.ask(gateway.post(body, bearer("some")))
        assert (reply.status, reply.code, reply.error["param"]) == (400, "invalid_request", "model")
    assert served.calls == []
    assert (await gateway.ask(gateway.post(body, bearer("all")))).status == 200
    assert served.calls[0].body == body
    assert (await gateway.ask(gateway.post(None, bearer("some")))).status == 200
    gateway = await house(served)
    assert (await gateway.ask(gateway.post(body))).status == 200
