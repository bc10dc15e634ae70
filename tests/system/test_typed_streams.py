"""Streams of ``/v1/messages`` and ``/v1/responses``, translated: an engine breaks one, an operator moves one."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.parallel import all_of
from tests.support.waiting import until

BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"max_tokens": 60, "messages": [{"role": "user", "content": "Tell"}]},
    "/v1/responses": {"max_output_tokens": 60, "input": "Tell"},
}
PATHS = pytest.mark.parametrize("path", BODIES)
_VARYING = {"id", "item_id", "logprobs", "response", "usage"}
"""Ids differ from request to request; the rest is not sent by all engines, or is looked at apart."""


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[SimEngine, SimEngine]]:
    first, other = SimEngine("m"), SimEngine("m")
    with all_of(first, other):
        yield first, other


@pytest.fixture(scope="module")
def gateway(engines: tuple[SimEngine, SimEngine]) -> Iterator[RunningGateway]:
    backends = (
        f'[backends.{name}]\nurl = "{engine.url}"\ndriver = "sim"\nmodels = ["m"]\npriority = {priority}\n'
        for priority, (name, engine) in enumerate(zip("ab", engines, strict=True))
    )
    rules = '[routing]\nstrategy = "priority_only"\n[checks]\nfailures = 1000\n'
    with RunningGateway(rules + "".join(backends)) as gateway:
        gateway.until_health(a="healthy", b="healthy")
        yield gateway


class Reading:
    """A client that reads a stream."""

    def __init__(self) -> None:
        self.wire = b""

    async def read(self, url: str, path: str) -> None:
        body = {"model": "m", "stream": True, **BODIES[path]}
        async with (
            plain_httpx.AsyncClient() as client,
            client.stream("POST", url + path, json=body, headers={"x-request-id": "r"}) as reply,
        ):
            async for piece in reply.aiter_raw():
                self.wire += piece

    def events(self) -> Any:
        """The events, without what varies."""
        ids = set(re.findall(rb'"(?:id|item_id)":\s*"([^"]*)"', self.wire))
        assert len(ids) <= 2, "one of the answer, one of its message"
        lines = [line for line in self.wire.decode().splitlines() if line.startswith("data: ")]
        return without_varying([json.loads(line.removeprefix("data: ")) for line in lines])

    @property
    def usage(self) -> dict[str, int]:
        """The tokens that the client is told."""
        counts = re.findall(rb'"((?:in|out)put_tokens)":\s*(\d+)', self.wire)
        return {name.decode(): int(count) for name, count in counts}


def without_varying(value: Any) -> Any:
    if isinstance(value, list):
        return [without_varying(each) for each in value]
    if isinstance(value, dict):
        return {name: without_varying(each) for name, each in value.items() if name not in _VARYING}
    return value


@PATHS
async def test_a_stream_goes_on_at_another_engine(
    engines: tuple[SimEngine, SimEngine], gateway: RunningGateway, path: str
) -> None:
    whole, seen = Reading(), Reading()
    await whole.read(gateway.url, path)
    engines[0].fault("drop", after=9, model="m", count=1)
    await seen.read(gateway.url, path)
    assert seen.events() == whole.events()
    assert (seen.usage, b"event: error" in seen.wire) == (whole.usage, False)


@PATHS
async def test_an_operator_moves_a_stream(
    engines: tuple[SimEngine, SimEngine], gateway: RunningGateway, path: str
) -> None:
    whole, seen = Reading(), Reading()
    await whole.read(gateway.url, path)
    engines[0].fault("slow", per_chunk="300ms", model="m", count=1)
    reading = asyncio.ensure_future(seen.read(gateway.url, path))
    await until(lambda: seen.wire.count(b"delta") > 4)
    async with plain_httpx.AsyncClient() as client:
        moved = await client.post(f"{gateway.url}/api/requests/r/move", json={"to": "b"})
    await reading
    assert (moved.status_code, moved.json()["to"]) == (200, "b")
    assert seen.events() == whole.events()
    assert seen.usage == whole.usage
