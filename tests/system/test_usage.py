"""What the gateway keeps of usage is what the engine says it computed; keys, audit and limits at run time."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Timer
from time import monotonic
from typing import Any

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.waiting import until

KEYS = [f"k{number}" for number in range(5)]
ADMIN = {"authorization": "Bearer ops-secret"}


@pytest.fixture(scope="module")
def engine() -> Iterator[SimEngine]:
    with SimEngine("m", tpot="1ms") as engine:
        yield engine


def config(engine: SimEngine, workers: int) -> str:
    keys = "".join(f'[[auth.keys]]\nname = "{key}"\nkey = "{key}-secret"\n' for key in KEYS)
    return f"""
        [server]
        workers = {workers}
        {keys}
        [[auth.keys]]
        name = "ops"
        key = "ops-secret"
        admin = true
        [prices.m]
        input = 1.0
        output = 2.0
        [backends.a]
        driver = "sim"
        url = "{engine.url}"
        models = ["m"]
    """


def computed(engine: SimEngine) -> tuple[int, int]:
    """The tokens of prompts and answers that the engine counts."""
    page = plain_httpx.get(f"{engine.url}/metrics").text
    found = (
        re.search(rf"^vllm:{name}_tokens_total\S* (\S+)$", page, re.MULTILINE) for name in ("prompt", "generation")
    )
    prompt, answer = (int(float(each[1])) if each else 0 for each in found)
    return prompt, answer


def usage(gateway: RunningGateway, query: str = "") -> dict[str, Any]:
    answer: dict[str, Any] = (
        plain_httpx.get(f"{gateway.url}/api/usage?{query}", headers=ADMIN).raise_for_status().json()
    )
    return answer


async def ask(client: httpx.AsyncClient, number: int) -> None:
    """A request; every second one is a stream, whose client does not ask for its usage."""
    body = {"model": "m", "prompt": "Hello, engine house! " * (1 + number % 7), "max_tokens": 3 + number % 11}
    headers = {"authorization": f"Bearer {KEYS[number % len(KEYS)]}-secret"}
    reply = await client.post("/v1/completions", json={**body, "stream": number % 2 == 1}, headers=headers)
    assert reply.status_code == 200
    assert ('"usage"' in reply.text) == (number % 2 == 0)


async def leave(client: httpx.AsyncClient) -> None:
    """A stream that its client leaves."""
    body = {"model": "m", "prompt": "Hello", "max_tokens": 1500, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body, headers=ADMIN) as reply:
        async for line in reply.aiter_lines():
            if line.startswith("data: "):
                return


def check_own(gateway: RunningGateway) -> None:
    """A key sees what it has used itself, and no more."""
    own = plain_httpx.get(f"{gateway.url}/v1/usage", headers={"authorization": "Bearer k1-secret"}).json()
    assert [row["key"] for row in own["rows"]] == ["k1"]
    assert own["total"]["requests"] == 12
    refused = plain_httpx.get(f"{gateway.url}/api/usage", headers={"authorization": "Bearer k1-secret"})
    assert refused.status_code == 403


@pytest.mark.parametrize("workers", [1, 2])
async def test_usage_adds_up_and_survives_a_kill(engine: SimEngine, tmp_path: Path, workers: int) -> None:
    text, env = config(engine, workers), {"ENGINEHOUSE_STATE_DIR": str(tmp_path)}
    with RunningGateway(text, env, key="ops-secret") as gateway:
        gateway.until_health(a="healthy")
        before = computed(engine)
        async with plain_httpx.AsyncClient(base_url=gateway.url) as client:
            await asyncio.gather(*(ask(client, number) for number in range(60)))
            await until(lambda: usage(gateway)["total"]["requests"] == 60)
            total = usage(gateway)["total"]
            after = computed(engine)
            assert (total["tokens_in"], total["tokens_out"]) == (after[0] - before[0], after[1] - before[1])
            assert total["cost"] == pytest.approx((total["tokens_in"] + 2 * total["tokens_out"]) / 1e6)
            rows = usage(gateway, "by=key,model")["rows"]
            assert [(row["key"], row["model"], row["requests"], row["failed"]) for row in rows] == [
                (key, "m", 12, 0) for key in KEYS
            ]
            engine.fault("slow", per_chunk="1h")
            await asyncio.gather(*(leave(client) for _ in range(5)))
            engine.clear()
            await until(lambda: usage(gateway)["total"]["requests"] == 65)
        (ops,) = (row for row in usage(gateway)["rows"] if row["key"] == "ops")
        assert (ops["requests"], ops["failed"]) == (5, 5)
        assert ops["tokens_out"] >= 5
        kept = usage(gateway)
        gateway.kill()
    with RunningGateway(text, env, key="ops-secret") as gateway:
        assert usage(gateway) == kept
        check_own(gateway)


@pytest.mark.parametrize("workers", [1, 2])
def test_keys_are_made_and_revoked_while_it_runs(engine: SimEngine, workers: int) -> None:
    with RunningGateway(config(engine, workers), key="ops-secret") as gateway:
        gateway.until_health(a="healthy")
        made = plain_httpx.post(f"{gateway.url}/api/keys", json={"name": "new", "max_concurrent": 3}, headers=ADMIN)
        assert made.status_code == 201
        left = plain_httpx.get(f"{gateway.url}/api/limits", headers=ADMIN).json()["limits"]["new"]
        assert [(each["limit"], each["amount"], each["left"]) for each in left] == [("max_concurrent", 3, 3)]
        mine = {"authorization": f"Bearer {made.json()['key']}"}
        assert plain_httpx.get(f"{gateway.url}/v1/limits", headers=mine).json()["limits"] == left
        assert plain_httpx.get(f"{gateway.url}/api/limits", headers=mine).status_code == 403
        secret = {"authorization": f"Bearer {made.json()['key']}"}
        body = {"model": "m", "prompt": "Hello", "max_tokens": 2}
        for _ in range(4):
            assert plain_httpx.post(f"{gateway.url}/v1/completions", json=body, headers=secret).status_code == 200
        listed = plain_httpx.get(f"{gateway.url}/api/keys", headers=ADMIN).json()["keys"]
        (row,) = (each for each in listed if each["name"] == "new")
        assert (row["source"], row["max_concurrent"]) == ("api", 3)
        assert made.json()["key"] not in json.dumps(listed)
        rotated = plain_httpx.post(f"{gateway.url}/api/keys/new/rotate", headers=ADMIN)
        assert rotated.json().keys() == {"name", "key"}
        for _ in range(4):
            assert plain_httpx.post(f"{gateway.url}/v1/completions", json=body, headers=secret).status_code == 401
        secret = {"authorization": f"Bearer {rotated.json()['key']}"}
        for _ in range(4):
            assert plain_httpx.post(f"{gateway.url}/v1/completions", json=body, headers=secret).status_code == 200
        assert plain_httpx.delete(f"{gateway.url}/api/keys/new", headers=ADMIN).json() == {"revoked": "new"}
        for _ in range(4):
            assert plain_httpx.post(f"{gateway.url}/v1/completions", json=body, headers=secret).status_code == 401
        assert plain_httpx.delete(f"{gateway.url}/api/keys/new", headers=ADMIN).status_code == 404
        entries = plain_httpx.get(f"{gateway.url}/api/audit", headers=ADMIN).json()["entries"]
        assert [(each["who"], each["act"], each["outcome"]) for each in entries] == [
            ("ops", "DELETE /api/keys/new", "refused"),
            ("ops", "DELETE /api/keys/new", "done"),
            ("ops", "POST /api/keys/new/rotate", "done"),
            ("ops", "POST /api/keys", "done"),
        ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_foreign_lock_at_the_end_loses_nothing(engine: SimEngine, tmp_path: Path, workers: int) -> None:
    text, env = config(engine, workers), {"ENGINEHOUSE_STATE_DIR": str(tmp_path)}
    body = {"model": "m", "prompt": "Hello", "max_tokens": 2}
    with RunningGateway(text, env, key="ops-secret") as gateway:
        gateway.until_health(a="healthy")
        with plain_httpx.Client(base_url=gateway.url, headers=ADMIN) as client:
            for _ in range(20):
                assert client.post("/v1/completions", json=body).status_code == 200
            gateway.until(lambda _: bool(usage(gateway)["total"]["requests"] == 20))
            with closing(sqlite3.connect(tmp_path / "usage.sqlite", check_same_thread=False)) as other:
                other.execute("BEGIN IMMEDIATE")
                asked, ends = 20, monotonic() + 1.5  # so long that the store waits for the lock
                while monotonic() < ends:
                    assert client.post("/v1/completions", json=body).status_code == 200
                    asked += 1
                unlock = Timer(2.0, other.rollback)
                unlock.start()
                status = gateway.stop()
                unlock.join()
        assert status in (0, -signal.SIGTERM)
    with RunningGateway(text, env, key="ops-secret") as gateway:
        assert usage(gateway)["total"]["requests"] == asked
