"""Another process holds the gateway's databases locked: a backup, or somebody who looks into them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx

CONFIG = """
[backends.a]
driver = "sim"
url = "{engine}"
models = ["m"]
[usage]
store = "sqlite"
[plugins.responses]
stored = "16MiB"
[[auth.keys]]
name = "team"
key = "secret-team"
[[auth.keys]]
name = "ops"
key = "secret-ops"
admin = true
"""
_WITHIN_S = 4.0
"""SQLite waits 5 seconds for a lock."""


@contextmanager
def locked(folder: Path) -> Iterator[int]:
    """Hold all databases of ``folder`` locked; yields how many."""
    connections = [sqlite3.connect(each, isolation_level=None) for each in folder.rglob("*.sqlite")]
    for each in connections:
        each.execute("BEGIN EXCLUSIVE")
    try:
        yield len(connections)
    finally:
        for each in connections:
            each.execute("ROLLBACK")
            each.close()


def post(gateway: RunningGateway, path: str, body: dict[str, Any]) -> tuple[httpx.Response, float]:
    began = time.monotonic()
    headers = {"authorization": "Bearer secret-team"}
    answer = plain_httpx.post(f"{gateway.url}{path}", json={"model": "m", **body}, headers=headers)
    return answer, time.monotonic() - began


def complete(gateway: RunningGateway) -> tuple[httpx.Response, float]:
    return post(gateway, "/v1/completions", {"prompt": "x", "max_tokens": 2})


def counted(gateway: RunningGateway) -> int:
    headers = {"authorization": "Bearer secret-ops"}
    page = plain_httpx.get(f"{gateway.url}/api/usage", headers=headers).json()
    number: int = page["total"]["requests"]
    return number


def test_requests_are_served_and_counted_while_databases_are_locked(tmp_path: Path) -> None:
    with SimEngine("m") as engine, ThreadPoolExecutor(8) as pool:
        environment = {"ENGINEHOUSE_STATE_DIR": str(tmp_path)}
        with RunningGateway(CONFIG.format(engine=engine.url), environment, key="secret-ops") as gateway:
            gateway.until_health(a="healthy")
            stored, _ = post(gateway, "/v1/responses", {"input": "Hi", "max_output_tokens": 2})
            assert stored.is_success, stored.text
            assert complete(gateway)[0].is_success
            gateway.until(lambda _: counted(gateway) == 2 and len([*tmp_path.rglob("*.sqlite")]) >= 2)
            tries, longest = 0, _WITHIN_S
            with locked(tmp_path) as databases:
                assert databases >= 2
                while longest >= _WITHIN_S and tries < 3:  # by chance, a busy machine may be as slow
                    answers = list(pool.map(lambda _: complete(gateway), range(20)))
                    assert {answer.status_code for answer, _ in answers} == {200}
                    tries, longest = tries + 1, max(seconds for _, seconds in answers)
            assert longest < _WITHIN_S
            gateway.until(lambda _: counted(gateway) == 2 + 20 * tries)
            name = stored.json()["id"]
            again, _ = post(gateway, "/v1/responses", {"input": "More", "previous_response_id": name})
            assert again.is_success, again.text
