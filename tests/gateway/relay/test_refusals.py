"""What requests that the gateway refuses leave behind: text, and little of it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from enginehouse.domain.errors import InvalidRequest
from enginehouse.relay.heads import deadline_in
from tests.support.garbage import without_collector
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway

MIB = 1 << 20
KEYS = {"keys": [{"name": "k", "key": "secret", "models": ["m", "gone"], "admin": True}]}
KEY = b"authorization: Bearer secret"


async def decisions(gateway: ServedGateway, *lines: bytes) -> list[dict[str, Any]]:
    reply = await gateway.ask(gateway.get("/api/decisions", *lines))
    assert reply.status == 200
    return list(msgspec.json.decode(reply.body)["decisions"])


@pytest.fixture
def traced_memory() -> Iterator[None]:
    with without_collector():
        tracemalloc.start()
        yield
        tracemalloc.stop()


@pytest.mark.parametrize(("model", "status"), [("nothing", 404), ("other", 403), ("m", 503)])
async def test_a_refused_request_leaves_no_body_in_memory(
    house: OpenGateway, engine: StartEngine, traced_memory: None, model: str, status: int
) -> None:
    models = ["m", "other"]
    gateway = await house(
        await engine(), backend={"models": models}, auth={"keys": [{"name": "k", "key": "s", "models": ["m", "no*"]}]}
    )
    for _ in range(3):
        gateway.fleet.failed("a", "broken")
    request = gateway.post({"model": model, "image": "x" * MIB}, b"authorization: Bearer s")
    client = await gateway.client()
    assert (await client.ask(request)).status == status
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(8):
        assert (await client.ask(request)).status == status
    after, _ = tracemalloc.get_traced_memory()
    assert after - before < 3 * MIB


async def test_requests_without_a_key_push_no_decision_out(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth=KEYS)
    assert (await gateway.ask(gateway.post(None, KEY))).status == 200
    for _ in range(3):
        assert (await gateway.ask(gateway.post())).status == 401
    assert [each["requested"] for each in await decisions(gateway, KEY)] == ["m"]
    assert gateway.relay.context.counters.refused["unauthorized", ""] == 3


async def test_a_refusal_is_shown_with_its_error(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    await gateway.ask(gateway.post({"model": "gone"}))
    [decision] = await decisions(gateway)
    assert (decision["requested"], decision["chosen"], decision["attempted"]) == ("gone", None, ["gone"])
    assert decision["error"]["code"] == "model_not_found"


async def test_a_long_model_name_is_cut_in_errors_and_decisions(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.post({"model": "ä" * 1000}))
    assert (reply.status, reply.code) == (404, "model_not_found")
    [decision] = await decisions(gateway)
    assert len(decision["requested"].encode()) <= 256
    for text in (reply.error["message"], reply.error["details"]["model"], decision["error"]["message"]):
        assert "ä" * 100 in text
        assert len(text.encode()) < 400


@pytest.mark.parametrize("how", ["body", "path"])
async def test_a_model_name_above_the_bound_is_an_invalid_request(
    house: OpenGateway, engine: StartEngine, how: str
) -> None:
    gateway = await house(await engine())
    name = "x" * 2000
    request = gateway.post({"model": name}) if how == "body" else gateway.get(f"/upstream/{name}/v1/models")
    reply = await gateway.ask(request)
    assert (reply.status, reply.code, reply.error["param"]) == (400, "invalid_request", "model")
    assert len(reply.body) < 1000


@pytest.mark.parametrize("limit", ["0", "-1", "x", "1001", "9" * 5000, "²"])
async def test_a_limit_out_of_bounds_is_an_invalid_request(house: OpenGateway, engine: StartEngine, limit: str) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.get("/api/decisions?limit=" + limit.replace("²", "%C2%B2")))
    assert (reply.status, reply.code, reply.error["param"]) == (400, "invalid_request", "limit")


async def test_a_limit_in_bounds_bounds_the_decisions(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    for _ in range(3):
        await gateway.ask()
    for limit, count in (("1", 1), ("1000", 3)):
        reply = await gateway.ask(gateway.get(f"/api/decisions?limit={limit}"))
        assert len(msgspec.json.decode(reply.body)["decisions"]) == count


@pytest.mark.parametrize("value", [b"-1", b"1.5", b"86400001", b"9" * 5000])
def test_a_deadline_that_is_none_is_the_clients_mistake(value: bytes) -> None:
    with pytest.raises(InvalidRequest, match="x-enginehouse-deadline"):
        deadline_in([(b"x-enginehouse-deadline", value)])
