"""Every stream is moved again and again by load rules, then the engine that they left is killed."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.parallel import all_of
from tests.support.seen_stream import SeenStream
from tests.support.stream_reader import Reader, percentile

MOVES = 5
CONFIGURATION = """
[routing]
strategy = "priority_only"

[checks]
interval = "50ms"
failures = 1
successes = 1

[rescheduling]
enabled = true
interval = "50ms"
policies = ["neutral_failover"]
migrators = ["{migrator}"]
cool_down = "0s"

[plugins.replay]
at_once = 32

[backends.a]
driver = "sim"
url = "{a}"

[backends.b]
driver = "sim"
url = "{b}"
priority = 1

[backends.last]
driver = "sim"
url = "{last}"
priority = 2
"""


def engine(tpot: str) -> SimEngine:
    return SimEngine("m", tpot=tpot, llumlet_port=0, max_num_seqs=512)


@pytest.mark.long
@pytest.mark.parametrize("migrator", ["llumlet", "replay"])
@pytest.mark.parametrize(
    ("count", "tokens", "tpot"),
    [
        (8, 700, "40ms"),
        pytest.param(200, 1400, "400ms", marks=[pytest.mark.slow, pytest.mark.timeout(400)]),
    ],
)
async def test_streams_moved_five_times_are_whole_and_need_no_engine_that_they_left(
    migrator: str, count: int, tokens: int, tpot: str
) -> None:
    """The steps are so long, and so many, that no stream ends before all have moved, on a busy machine too."""
    a, b, last = engine(tpot), engine(tpot), SimEngine("m", llumlet_port=0, max_num_seqs=512)
    with all_of(a, b, last):
        last.fault("unhealthy")
        configuration = CONFIGURATION.format(migrator=migrator, a=a.url, b=b.url, last=last.url)
        limits = httpx.Limits(max_connections=2 * count)
        with RunningGateway(configuration) as gateway:
            gateway.until_health(a="healthy", b="healthy")
            async with plain_httpx.AsyncClient(timeout=120, limits=limits) as client:
                readers = [Reader(number, tokens, return_token_ids=True) for number in range(count)]
                reading = [asyncio.ensure_future(each.read(client, gateway.url)) for each in readers]
                await moved_to_and_fro(client, gateway, {"a": a, "b": b}, count)
                await moved_to_the_last(client, gateway, last, b)
                a.kill()
                b.kill()
                seen = await asyncio.gather(*reading)
                others = (Reader(number, tokens, return_token_ids=True) for number in range(count))
                whole = await asyncio.gather(*(each.read(client, last.url) for each in others))
                records = (await client.get(f"{gateway.url}/api/migrations")).json()["migrations"]
    assert [answer(each) for each in seen] == [answer(each) for each in whole]
    assert {each["migrator"] for each in records if each["moved"]} == {migrator}
    gaps = [each.longest * 1000 for each in readers]
    print(f"{migrator}, {count} streams: gap p50 {percentile(gaps, 0.5):.0f} ms, p99 {percentile(gaps, 0.99):.0f} ms")


def answer(stream: SeenStream) -> tuple[object, ...]:
    return (*stream.answer, stream.counts, len(stream.heads))


async def moved_to_and_fro(
    client: httpx.AsyncClient, gateway: RunningGateway, engines: dict[str, SimEngine], count: int
) -> None:
    """Let one engine after the other report that it is not healthy, until all streams have left it."""
    source, destination = "a", "b"
    await until(client, gateway, lambda rows: len(rows) == count and all(row["output_tokens"] for row in rows))
    for move in range(1, MOVES + 1):
        engines[destination].clear()
        gateway.until_health(**{destination: "healthy"})
        engines[source].fault("unhealthy")
        await until(
            client, gateway, lambda rows, move=move: len(rows) == count and all(row["moves"] >= move for row in rows)
        )
        rows = (await client.get(f"{gateway.url}/api/requests")).json()["requests"]
        assert [row["replica"] for row in rows] == [f"m@{destination}"] * count
        source, destination = destination, source


async def moved_to_the_last(
    client: httpx.AsyncClient, gateway: RunningGateway, last: SimEngine, left: SimEngine
) -> None:
    """Move all streams from the engine ``left`` to one that makes the rest of them at once."""
    last.clear()
    gateway.until_health(last="healthy")
    left.fault("unhealthy")
    await until(client, gateway, lambda rows: all(row["replica"] == "m@last" for row in rows))


async def until(client: httpx.AsyncClient, gateway: RunningGateway, holds: Any) -> None:
    async def ask() -> None:
        while not holds((await client.get(f"{gateway.url}/api/requests")).json()["requests"]):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    await asyncio.wait_for(ask(), 90)
