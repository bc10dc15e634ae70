"""The priority of a key reaches engines that order requests by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from enginehouse.relay.engine_facts import with_priority
from enginehouse_kit.testing import PlayedServer
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway

KEYS = [
    {"name": "plain", "key": "k-plain"},
    {"name": "fast", "key": "k-fast", "priority": 5},
    {"name": "slow", "key": "k-slow", "priority": -5},
]


class Vllm(PlayedServer):
    """Tells its policy as vLLM does in development mode."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = "priority"
        self.asked = 0
        self.bodies: list[dict[str, Any]] = []

    def get(self, path: str) -> tuple[int, object]:
        if path != "/server_info?config_format=json":
            return 404, {"detail": "Not Found"}
        self.asked += 1
        return 200, {"vllm_config": {"scheduler_config": {"max_num_seqs": 4, "policy": self.policy}}}

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, object]:
        self.bodies.append(body)
        return 200, {"choices": []}


@pytest.fixture
def engine() -> Iterator[Vllm]:
    with Vllm() as engine:
        yield engine


async def opened(house: OpenGateway, *engines: Vllm) -> ServedGateway:
    return await house(*engines, backend={"driver": "vllm"}, auth={"keys": KEYS})


async def known(gateway: ServedGateway, order: int) -> None:
    context = gateway.relay.context
    await gateway.until(lambda: context.engine_facts.priority_order(context.upstreams["a"]) == order)


async def asked(gateway: ServedGateway, engine: Vllm, key: str, **fields: object) -> object:
    line = b"authorization: Bearer %s" % key.encode()
    assert (await gateway.ask(gateway.post({"model": MODEL, "messages": [], **fields}, line))).status == 200
    return engine.bodies[-1].get("priority", "none")


async def test_a_higher_priority_is_a_lower_number_for_vllm(house: OpenGateway, engine: Vllm) -> None:
    gateway = await opened(house, engine)
    await known(gateway, -1)
    assert [await asked(gateway, engine, key) for key in ("k-fast", "k-plain", "k-slow")] == [-5, 0, 5]


async def test_a_client_chooses_only_if_its_key_has_no_priority(house: OpenGateway, engine: Vllm) -> None:
    gateway = await opened(house, engine)
    await known(gateway, -1)
    assert await asked(gateway, engine, "k-plain", priority=3) == 3
    assert await asked(gateway, engine, "k-slow", priority=-100) == 5


async def test_an_engine_that_takes_requests_as_they_come_is_told_nothing(house: OpenGateway, engine: Vllm) -> None:
    engine.policy = "fcfs"
    gateway = await opened(house, engine)
    assert await asked(gateway, engine, "k-fast") == "none"
    await gateway.until(lambda: engine.asked == 1)
    await known(gateway, 0)
    assert await asked(gateway, engine, "k-fast") == "none"
    assert engine.asked == 1


async def test_without_keys_the_engine_is_not_even_asked(house: OpenGateway, engine: Vllm) -> None:
    gateway = await house(engine, backend={"driver": "vllm"})
    assert (await gateway.ask(gateway.post({"model": MODEL, "messages": []}))).status == 200
    assert "priority" not in engine.bodies[-1]
    assert engine.asked == 0


@pytest.mark.parametrize(
    ("fields", "order", "priority", "expected"),
    [
        ({}, -1, 5, -5),
        ({}, 1, 5, 5),
        ({}, 1, 0, 0),
        ({"priority": 9}, 1, 0, 9),
        ({"priority": 9}, 1, 5, 5),
        ({"tools": [{"priority": 1}]}, 1, 5, 5),
    ],
)
def test_the_number_that_an_engine_gets(fields: dict[str, Any], order: int, priority: int, expected: int) -> None:
    body = msgspec.json.encode({"model": "m", **fields})
    assert msgspec.json.decode(with_priority(body, order, priority)) == {"model": "m", **fields, "priority": expected}


def test_a_body_that_is_no_json_object_stays() -> None:
    assert with_priority(b"--form", 1, 5) == b"--form"
