"""What the answers of an engine say of its health and of its speed."""

from __future__ import annotations

import asyncio
import json

import pytest

from enginehouse import Health
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.stream_events import event

EVENT = event()

UPSTREAM = "/upstream/m/v1/chat/completions"


@pytest.fixture
async def served(house: OpenGateway, engine: StartEngine) -> tuple[ServedGateway, ScriptedEngine]:
    """A gateway that gives up on its only backend after two failures in a row."""
    only = await engine()
    return await house(only, checks={"failures": 2}, routing={"max_retries": 0}), only


async def answered(
    gateway: ServedGateway, engine: ScriptedEngine, *statuses: int, path: str = "", body: bytes = b"{}"
) -> Health:
    """The health of the backend after answers with these statuses."""
    for status in statuses:
        engine.says(body, status)
        reply = await gateway.ask(gateway.post(path=path) if path else None)
        assert reply.status == status
    [backend] = gateway.fleet.backends()
    return backend.health


def latency(gateway: ServedGateway) -> float:
    [backend] = gateway.fleet.backends()
    return backend.avg_latency_ms


async def test_503_counts_against_a_backend(served: tuple[ServedGateway, ScriptedEngine]) -> None:
    assert await answered(*served, 503, 503) is Health.UNHEALTHY
    assert latency(served[0]) == 0, "a quick refusal is no sign of a quick backend"


async def test_500_counts_against_the_only_backend_if_nothing_else_is_answered(
    served: tuple[ServedGateway, ScriptedEngine],
) -> None:
    assert await answered(*served, 500, 200, 500) is Health.HEALTHY
    assert await answered(*served, 500) is Health.UNHEALTHY


async def test_500_counts_against_the_last_healthy_backend(house: OpenGateway, engine: StartEngine) -> None:
    last, other = await engine(), await engine()
    gateway = await house(last, other, checks={"failures": 2})
    gateway.fleet.mark_unhealthy("b", "refused")
    last.otherwise((last.answer(b"{}", 500),))
    assert [(await gateway.ask()).status for _ in range(2)] == [500, 500]
    assert gateway.fleet.health("a") is Health.UNHEALTHY, "no other backend can show which is at fault"


@pytest.mark.parametrize(
    "message",
    [
        "image input is not supported - hint: if this is unexpected, you may need to provide the mmproj",
        "Failed to parse messages: Missing tool call type",
        "Failed to parse tools: Unsupported tool type",
        "the request exceeds the available context size, try increasing it",
    ],
)
async def test_500_that_blames_the_request_counts_against_no_backend(
    house: OpenGateway, engine: StartEngine, message: str
) -> None:
    unable, able = await engine(), await engine()
    body = json.dumps({"error": {"code": 500, "message": message, "type": "server_error"}}).encode()
    alone = await house(unable, checks={"failures": 2})
    assert await answered(alone, unable, *[500] * 5, body=body) is Health.HEALTHY
    gateway = await house(unable, able, checks={"failures": 2}, routing={"strategy": "priority_only"})
    unable.otherwise((unable.answer(body, 500),))
    assert [(await gateway.ask()).status for _ in range(5)] == [200] * 5, "another engine may be able"
    assert {backend.health for backend in gateway.fleet.backends()} == {Health.HEALTHY}
    assert len(unable.calls) == 10


@pytest.mark.parametrize("status", [500, 502, 503])
@pytest.mark.parametrize(
    "error",
    [
        {"error": {"message": "no", "type": "BadRequestError", "param": None, "code": 400}},
        {"error": {"message": "no", "type": "invalid_request_error"}},
        {"error": {"message": "no", "code": "422"}},
        {"object": "error", "message": "no", "type": "BadRequestError", "code": 400},
        {"error": {"message": "no", "type": "not_supported_error"}},
        {"error": {"message": "the request exceeds the available context size", "type": "server_error"}},
    ],
)
async def test_an_error_that_blames_the_request_counts_against_no_backend_whatever_its_status(
    served: tuple[ServedGateway, ScriptedEngine], status: int, error: object
) -> None:
    assert await answered(*served, *[status] * 3, body=json.dumps(error).encode()) is Health.HEALTHY


@pytest.mark.parametrize("path", ["", UPSTREAM])
async def test_429_is_no_success_between_two_failures(served: tuple[ServedGateway, ScriptedEngine], path: str) -> None:
    gateway, engine = served
    await answered(gateway, engine, 503)
    await answered(gateway, engine, 429, 429, 429, path=path)
    assert latency(gateway) == 0
    assert await answered(gateway, engine, 503) is Health.UNHEALTHY


async def test_429_is_no_failure(served: tuple[ServedGateway, ScriptedEngine]) -> None:
    assert await answered(*served, 429, 429, 429, 429) is Health.HEALTHY


@pytest.mark.parametrize("path", ["", UPSTREAM])
async def test_an_answer_is_a_success_between_two_failures(
    served: tuple[ServedGateway, ScriptedEngine], path: str
) -> None:
    gateway, engine = served
    await answered(gateway, engine, 503)
    await answered(gateway, engine, 200, path=path)
    assert await answered(gateway, engine, 503) is Health.HEALTHY


async def test_an_answer_has_a_latency(served: tuple[ServedGateway, ScriptedEngine]) -> None:
    await answered(*served, 200)
    assert latency(served[0]) > 0


@pytest.mark.parametrize("path", ["", UPSTREAM, "/v1/embeddings"])
async def test_an_engine_that_cannot_do_what_is_asked_is_healthy(
    served: tuple[ServedGateway, ScriptedEngine], path: str
) -> None:
    assert await answered(*served, *[501] * 5, path=path) is Health.HEALTHY
    assert await answered(*served, 503, 501, 503) is Health.HEALTHY, "it is as alive as with any other answer"


async def test_503_says_why_each_engine_is_unhealthy(served: tuple[ServedGateway, ScriptedEngine]) -> None:
    gateway, engine = served
    await answered(gateway, engine, 503, 503)
    refusal = await gateway.ask()
    assert refusal.status == 503
    assert b"No healthy backend available for model 'm' ('a': answered 503)" in refusal.body


async def test_the_last_engine_is_asked_though_its_health_page_is_late(
    served: tuple[ServedGateway, ScriptedEngine],
) -> None:
    gateway, engine = served
    engine.streams(EVENT, asyncio.Event())
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    await client.chunk()
    for _ in range(3):
        gateway.fleet.probe_failed("a", "no answer to its health check within 1 s", late=True)
    assert gateway.fleet.health("a") is Health.UNHEALTHY
    engine.says(b"{}", 200)
    assert (await gateway.ask()).status == 200
    engine.says(b"{}", 503)
    assert (await gateway.ask()).body == b"{}"
    assert (await gateway.ask()).code == "no_healthy_backend", "a request to it has just failed"


async def test_an_idle_engine_whose_health_page_is_late_is_refused(
    served: tuple[ServedGateway, ScriptedEngine],
) -> None:
    gateway, _ = served
    for _ in range(3):
        gateway.fleet.probe_failed("a", "no answer to its health check within 1 s", late=True)
    refusal = await gateway.ask()
    assert refusal.code == "no_healthy_backend"
    assert b"no answer to its health check within 1 s" in refusal.body
