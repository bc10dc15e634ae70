"""What the answers of an engine say of its health and of its speed."""

from __future__ import annotations

import pytest

from enginehouse import Health
from tests.support.scripted_engine import ScriptedEngine, StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway

UPSTREAM = "/upstream/m/v1/chat/completions"


@pytest.fixture
async def served(house: OpenGateway, engine: StartEngine) -> tuple[ServedGateway, ScriptedEngine]:
    """A gateway that gives up on its only backend after two failures in a row."""
    only = await engine()
    return await house(only, checks={"failures": 2}, routing={"max_retries": 0}), only


async def answered(gateway: ServedGateway, engine: ScriptedEngine, *statuses: int, path: str = "") -> Health:
    """The health of the backend after answers with these statuses."""
    for status in statuses:
        engine.says(b"{}", status)
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
