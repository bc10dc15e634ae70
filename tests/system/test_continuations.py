"""Streams of real processes: an engine is killed under them, and an operator moves one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.stream_reader import Reader, percentile
from tests.support.waiting import until

FAULTS: list[tuple[str, dict[str, Any]]] = [
    ("error", {"status": 500}),
    ("error", {"status": 503}),
    ("hang", {}),
    ("slow", {"per_chunk": "1m"}),
    ("drop", {"after": 0}),
    ("drop", {"after": 9}),
    ("malformed", {"after": 9}),
    ("malformed", {"after": 9, "framing": True}),
]


def configuration(engines: dict[str, SimEngine]) -> str:
    tables = (
        f'[backends.{name}]\nurl = "{each.url}"\ndriver = "sim"\nmodels = ["m"]\n' for name, each in engines.items()
    )
    return "\n".join(tables)


@pytest.mark.parametrize("count", [24, pytest.param(100, marks=pytest.mark.slow)])
async def test_no_stream_breaks_when_one_of_three_engines_is_killed(count: int) -> None:
    with SimEngine("m", tpot="500ms") as a, SimEngine("m", tpot="10ms") as b, SimEngine("m", tpot="10ms") as c:
        engines = {"a": a, "b": b, "c": c}
        limits = httpx.Limits(max_connections=2 * count)
        with RunningGateway(configuration(engines)) as gateway:
            gateway.until_health(a="healthy", b="healthy", c="healthy")
            async with plain_httpx.AsyncClient(limits=limits) as client:
                readers = [Reader(number) for number in range(count)]
                reading = [asyncio.ensure_future(each.read(client, gateway.url)) for each in readers]
                alone = [asyncio.ensure_future(Reader(number).read(client, b.url)) for number in range(count)]
                await until(lambda: all(each.wire.count(b"data: ") > 2 for each in readers))
                a.kill()
                seen = await asyncio.gather(*reading)
                whole = await asyncio.gather(*alone)
                figures = (await client.get(f"{gateway.url}/metrics")).text
    assert [(each.text, each.finish, each.counts, each.ended) for each in seen] == [
        (each.text, each.finish, each.counts, each.ended) for each in whole
    ]
    assert 'outcome="tokens",reason="broken"' in figures
    gaps = [each.longest * 1000 for each in readers]
    print(f"{count} streams, longest gap p50 {percentile(gaps, 0.5):.0f} ms, p99 {percentile(gaps, 0.99):.0f} ms")


async def test_an_operator_moves_a_stream() -> None:
    with (
        SimEngine("m") as a,
        SimEngine("m") as b,
        RunningGateway(configuration({"a": a, "b": b})) as gateway,
    ):
        gateway.until_health(a="healthy", b="healthy")
        async with plain_httpx.AsyncClient() as client:
            alone = await Reader(1, 200).read(client, a.url)
            for each in (a, b):
                each.fault("slow", per_chunk="200ms")
            reader = Reader(1, 200)
            reading = asyncio.ensure_future(reader.read(client, gateway.url))
            await until(lambda: reader.wire.count(b"data: ") > 5)
            [row] = (await client.get(f"{gateway.url}/api/requests")).json()["requests"]
            assert (row["id"], row["moves"], row["stays"], row["phase"]) == ("r1", 0, None, "serving")
            assert row["output_tokens"] > 0
            source = row["replica"].removeprefix("m@")
            other = "b" if source == "a" else "a"
            url = f"{gateway.url}/api/requests/r1/move"
            refused = await client.post(url, json={"to": source})
            assert (refused.status_code, refused.json()["error"]["code"]) == (409, "cannot_continue")
            assert (await client.post(url, json={"at": other})).status_code == 400
            moved = (await client.post(url, json={"to": other})).json()
            assert {name: moved[name] for name in ("id", "from", "to")} == {"id": "r1", "from": source, "to": other}
            assert moved["gap_ms"] >= 0
            arguments = ["move", "--url", gateway.url, "r1", "--to", source]
            back = await asyncio.to_thread(CliRunner().invoke, enginehouse, arguments)
            assert back.output.startswith(f"r1 moved from {other} to {source}"), back.output
            [row] = (await client.get(f"{gateway.url}/api/requests")).json()["requests"]
            assert (row["moves"], row["replica"]) == (2, f"m@{source}")
            for each in (a, b):
                each.clear()
            assert (await client.post(url, json={"to": other})).status_code == 200
            assert (await reading).answer == alone.answer


@contextmanager
def two_engines() -> Iterator[tuple[SimEngine, SimEngine, RunningGateway]]:
    """A gateway that asks the first engine first, however often it has failed."""
    with SimEngine("m", tpot="2ms") as first, SimEngine("m", tpot="2ms") as other:
        rules = (
            '[timeouts]\nfirst_byte = "300ms"\nstall = "300ms"\n[checks]\nfailures = 1000\n'
            '[routing]\nstrategy = "priority_only"\nretry_budget = 1.0\n'
        )
        tables = configuration({"a": first, "b": other}).replace('["m"]\n', '["m"]\npriority = 9\n')
        with RunningGateway(rules + tables.replace("priority = 9", "priority = 1", 1)) as gateway:
            gateway.until_health(a="healthy", b="healthy")
            yield first, other, gateway


@pytest.mark.slow
async def test_no_stream_breaks_whatever_its_engine_does() -> None:
    count = 8
    with two_engines() as (first, other, gateway):
        async with plain_httpx.AsyncClient() as client:
            whole = await asyncio.gather(*(Reader(number).read(client, other.url) for number in range(count)))
            for kind, parameters in FAULTS:
                first.fault(kind, count=count, **parameters)
                seen = await asyncio.gather(*(Reader(number).read(client, gateway.url) for number in range(count)))
                first.clear()
                assert [(each.text, each.finish, each.counts, each.ended) for each in seen] == [
                    (each.text, each.finish, each.counts, each.ended) for each in whole
                ], kind


@pytest.mark.parametrize(("kind", "most"), [("refuse", 4), ("unhealthy", 6)])
async def test_streams_go_on_while_their_engine_takes_no_new_requests(kind: str, most: int) -> None:
    """``most``: how many requests reach the engine: those before the fault, and those until a probe notices it."""
    checks = '[checks]\ninterval = "1s"\nfailures = 1\n[routing]\nstrategy = "priority_only"\n'
    with SimEngine("m", tpot="20ms") as first, SimEngine("m", tpot="20ms") as other:
        tables = configuration({"a": first, "b": other}).replace('["m"]\n', '["m"]\npriority = 9\n')
        with RunningGateway(checks + tables.replace("priority = 9", "priority = 1", 1)) as gateway:
            gateway.until_health(a="healthy", b="healthy")
            async with plain_httpx.AsyncClient() as client:
                alone = [asyncio.ensure_future(Reader(number).read(client, other.url)) for number in range(8)]
                readers = [Reader(number) for number in range(8)]
                reading = [asyncio.ensure_future(each.read(client, gateway.url)) for each in readers[:4]]
                await until(lambda: all(each.wire.count(b"data: ") > 5 for each in readers[:4]))
                first.fault(kind)
                reading += [asyncio.ensure_future(each.read(client, gateway.url)) for each in readers[4:6]]
                await asyncio.to_thread(gateway.until_health, a="unhealthy")
                reading += [asyncio.ensure_future(each.read(client, gateway.url)) for each in readers[6:]]
                seen = await asyncio.gather(*reading)
                whole = await asyncio.gather(*alone)
            assert [each.answer for each in seen] == [each.answer for each in whole]
            assert all(each.ended for each in seen)
            assert 4 <= len(first.requests()) <= most


@pytest.mark.slow
async def test_if_every_engine_breaks_a_stream_ends_with_an_error_after_a_few_tries() -> None:
    with two_engines() as (first, other, gateway):
        for engine in (first, other):
            engine.fault("drop", after=9, path="/v1/chat/completions")
            engine.fault("drop", after=9, path="/v1/completions")
        async with plain_httpx.AsyncClient() as client:
            for number in range(2):
                reader = Reader(number)
                seen = await reader.read(client, gateway.url)
                assert (seen.ended, seen.error["code"]) == (False, "upstream_error")
                assert b"[DONE]" not in reader.wire
                assert len(first.requests()) + len(other.requests()) <= 2 + 3
                first.clear_requests()
                other.clear_requests()
            assert (await client.get(f"{gateway.url}/api/status")).json()["requests"] == 0
