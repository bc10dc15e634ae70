"""Two real gateways and a real Redis."""

from __future__ import annotations

import http.client
import json
import signal
import time
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from running_redis import SERVER, RunningRedis, until

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway

pytestmark = pytest.mark.skipif(SERVER is None, reason="redis-server is not installed")


_LOST = "The limit store is lost"


class Stage(NamedTuple):
    redis: RunningRedis
    gateways: tuple[RunningGateway, RunningGateway]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with RunningRedis(tmp_path_factory.mktemp("redis")) as redis, SimEngine("sim") as engine:
        keys = "".join(
            f'[[auth.keys]]\nname = "{name}"\nkey = "secret-of-{name}"\n{limit}\n'
            for name, limit in (
                ("ann", "requests_per_minute = 10"),
                ("bob", "max_concurrent = 2"),
                ("cid", "requests_per_minute = 600"),
                ("op", "admin = true"),
            )
        )
        config = f"""
[backends.a]
url = "{engine.url}"
driver = "sim"
[limits]
store = "redis"
url = "{redis.url}"
{keys}
"""
        with (
            RunningGateway(config, key="secret-of-op") as one,
            RunningGateway(config, key="secret-of-op") as two,
        ):
            yield Stage(redis, (one, two))


def ask(gateway: RunningGateway, key: str, **fields: object) -> tuple[int, float]:
    """The status of the answer, and the seconds until it came."""
    parts = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    body = {"model": "sim", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}], **fields}
    began = time.monotonic()
    try:
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer secret-of-{key}"}
        )
        response = connection.getresponse()
        response.read()
        return response.status, time.monotonic() - began
    finally:
        connection.close()


def test_two_gateways_admit_what_one_would(stage: Stage) -> None:
    """A machine that is too busy to ask Redis in time admits another share of 5, or two if Redis seems lost."""
    began = time.monotonic()
    answers = [ask(stage.gateways[number % 2], "ann") for number in range(40)]
    refilled = 10 * (time.monotonic() - began) / 60
    busy = any(seconds > 0.1 for _, seconds in answers)
    lost = any(_LOST in each.log for each in stage.gateways)
    statuses = [status for status, _ in answers]
    assert set(statuses) == {200, 429}
    assert 10 <= statuses.count(200) <= 12 + refilled + 5 * busy + 10 * lost


def test_a_lost_redis_is_told_and_stops_nobody(stage: Stage) -> None:
    one = stage.gateways[0]
    assert ask(one, "cid")[0] == 200
    until(lambda: not problem(one), "the gateway has Redis")
    warned = one.log.count(_LOST)
    stage.redis.signal(signal.SIGSTOP)
    try:
        until(lambda: ask(one, "cid") and problem(one), "the gateway notices")
        assert [ask(one, "cid")[0] for _ in range(30)] == [200] * 30
        assert "enginehouse_limits_alone 1.0" in metrics(one)
        assert one.log.count(_LOST) <= warned + 2  # not ten a second; a slow machine may lose Redis once more
    finally:
        stage.redis.signal(signal.SIGCONT)
    until(lambda: "enginehouse_limits_alone 0.0" in metrics(one), "the gateway finds it again")


def problem(gateway: RunningGateway) -> str:
    return str(gateway.status()["limits"]["problem"])


def metrics(gateway: RunningGateway) -> str:
    parts = urlsplit(gateway.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request("GET", "/metrics", headers={"authorization": "Bearer secret-of-op"})
        return connection.getresponse().read().decode()
    finally:
        connection.close()
