"""A Redis that is stopped, killed and spoiled while clients ask two gateways: what they see of it."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from urllib.parse import urlsplit

import pytest
from running_redis import SERVER, RunningRedis, until

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway

pytestmark = pytest.mark.skipif(SERVER is None, reason="redis-server is not installed")

CLIENTS, ROUNDS, LIMIT = 4, 4, 30
WAYS = ("stopped", "killed", "wrong")
CONFIG = """
[backends.a]
url = "{engine}"
driver = "sim"
[limits]
store = "redis"
url = "{redis}"
[telemetry]
access_log = false
[[auth.keys]]
name = "limited"
key = "secret-of-limited"
requests_per_minute = {limit}
[[auth.keys]]
name = "free"
key = "secret-of-free"
admin = true
"""


def ask(url: str, key: str, *, stream: bool) -> str:
    """The text of an answer, ``limited``, or how it failed."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    body = {"model": "sim", "prompt": "once upon a time", "max_tokens": 8, "stream": stream, "temperature": 0}
    headers = {"content-type": "application/json", "authorization": f"Bearer secret-of-{key}"}
    try:
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        data = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return f"failed: {error!r}"
    finally:
        connection.close()
    if answer.status != 200:
        return "limited" if answer.status == 429 else f"failed: {answer.status} {data!r}"
    if not stream:
        return str(json.loads(data)["choices"][0]["text"])
    events = [line[6:] for line in data.splitlines() if line.startswith(b"data: ")]
    if events[-1:] != [b"[DONE]"]:
        return f"failed: cut after {len(events)} events"
    return "".join(choice["text"] for event in events[:-1] for choice in json.loads(event).get("choices", ()))


def test_nobody_sees_that_redis_goes(tmp_path: Path) -> None:
    chance = random.Random(1)
    with ExitStack() as stack:
        redis = stack.enter_context(RunningRedis(tmp_path))
        engine = stack.enter_context(SimEngine("sim"))
        config = CONFIG.format(engine=engine.url, redis=redis.url, limit=LIMIT)
        gateways = [stack.enter_context(RunningGateway(config, key="secret-of-free")) for _ in range(2)]
        expected = ask(gateways[0].url, "free", stream=False)
        answers: dict[str, list[str]] = {"free": [], "limited": []}
        waits: list[float] = []
        done = Event()

        def client(number: int) -> None:
            key = ("free", "limited")[number % 2]
            while not done.is_set():
                began = time.monotonic()
                gateway = gateways[len(waits) % 2]
                answers[key].append(ask(gateway.url, key, stream=len(waits) % 3 == 0))
                waits.append(time.monotonic() - began)

        with ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(client, number) for number in range(CLIENTS)]
            try:
                ways = break_often(redis, gateways, chance)
            finally:
                done.set()
            for each in clients:
                each.result()
        seen = Counter(answers["free"] + answers["limited"])
        right, limited = seen.pop(expected), seen.pop("limited", 0)
        admitted = answers["limited"].count(expected)
        print(f"{right} right, {limited} limited, {seen.total()} wrong, longest {max(waits) * 1000:.0f} ms; {ways}")
        print(f"of the limited key {admitted} were admitted")
        assert not seen
        assert "limited" not in answers["free"]
        anew = LIMIT * (1 + ways["killed"])  # a Redis that was killed has forgotten what it granted
        assert admitted <= 2 * (anew + LIMIT * sum(waits) / CLIENTS / 60)


def break_often(redis: RunningRedis, gateways: list[RunningGateway], chance: random.Random) -> Counter[str]:
    """Break Redis in each of the ``WAYS`` at least once. Each gateway notices, and notices the end."""
    ways = Counter[str]()
    for way in (*WAYS, *chance.choices(WAYS, k=ROUNDS - len(WAYS))):
        redis.spoil(way)
        until(lambda: all(problem(each) for each in gateways), f"the gateways notice a Redis that is {way}")
        redis.repair(way)
        until(lambda: not any(problem(each) for each in gateways), "the gateways find it again")
        ways[way] += 1
    return ways


def problem(gateway: RunningGateway) -> str:
    return str(gateway.status()["limits"]["problem"])
