from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psycopg
import pytest
from enginehouse_postgres.postgres_usage import PostgresUsage
from running_postgres import INITDB, SERVER, RunningPostgres

from enginehouse import ConfigError
from enginehouse.callers import AuditEntry, UsageRow
from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.testing import check_usage_store

pytestmark = pytest.mark.skipif(SERVER is None or INITDB is None, reason="PostgreSQL is not installed")


@pytest.fixture(scope="module")
def postgres() -> Iterator[RunningPostgres]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        with RunningPostgres(Path(folder) / "postgres") as running:
            yield running


def store(postgres: RunningPostgres, schema: str) -> PostgresUsage:
    return PostgresUsage(PostgresUsage.Config(url=postgres.url, schema=schema))


def row(key: str, requests: int = 1) -> UsageRow:
    return UsageRow(hour=3600, key=key, model="m", user="", requests=requests)


def test_it_is_a_usage_store(postgres: RunningPostgres) -> None:
    check_usage_store(lambda: store(postgres, "checked"))


def test_gateways_that_begin_together_add_to_one_sum(postgres: RunningPostgres) -> None:
    stores = [store(postgres, "shared") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            list(pool.map(lambda each: each.add([row("b"), row("a")], []), stores))
    [sums] = [{each.key: each.requests for each in stores[0].usage(0, 7200)}]
    assert sums == {"a": 20, "b": 20}
    for each in stores:
        each.close()


def test_nothing_is_added_twice_and_nothing_is_lost_if_the_server_ends(postgres: RunningPostgres) -> None:
    usage = store(postgres, "ended")
    usage.add([row("a")], [AuditEntry(1.0, "ops", "", "POST /api/reload", 200, "done")])
    postgres.stop()
    with pytest.raises(psycopg.OperationalError):
        usage.add([row("a")], [])
    postgres.start()
    usage.add([row("a")], [])
    assert [each.requests for each in usage.usage(0, 7200)] == [2]
    assert [each.who for each in usage.audit(0, 10)] == ["ops"]
    usage.close()


def test_tables_of_an_older_version_get_the_column_that_they_lack(postgres: RunningPostgres) -> None:
    store(postgres, "older").audit(0, 1)
    with psycopg.connect(postgres.url) as connection:
        connection.execute("ALTER TABLE older.usage DROP COLUMN wh")
        connection.execute(
            'INSERT INTO older.usage (hour, key, model, "user", requests, failed, tokens_in, tokens_cached, '
            "tokens_out, seconds, cost) VALUES (3600, 'a', 'm', '', 2, 0, 0, 0, 0, 0, 0)"
        )
    usage = store(postgres, "older")
    usage.add([row("a"), UsageRow(hour=3600, key="b", model="m", user="", requests=1, wh=1.5)], [])
    assert [(each.key, each.requests, each.wh) for each in usage.usage(0, 7200)] == [("a", 3, 0.0), ("b", 1, 1.5)]
    usage.close()


def test_tables_of_a_newer_version_may_have_more_columns(postgres: RunningPostgres) -> None:
    store(postgres, "newer").audit(0, 1)
    with psycopg.connect(postgres.url) as connection:
        connection.execute("ALTER TABLE newer.usage ADD COLUMN water DOUBLE PRECISION DEFAULT 0")
    usage = store(postgres, "newer")
    usage.add([row("a")], [])
    usage.add([row("a")], [])
    assert list(usage.usage(0, 7200)) == [row("a", 2)]
    assert [each.requests for each in usage.sums(0, 7200, ("key",))] == [2]
    usage.close()


def test_an_address_that_is_none_is_refused_without_its_password() -> None:
    for url in ("postgresql://a:secret@[x/y z", "env:NO_SUCH_VARIABLE"):
        with pytest.raises(ConfigError) as refused:
            PostgresUsage(PostgresUsage.Config(url=url))
        assert "secret" not in str(refused.value)


def test_a_gateway_counts_there(postgres: RunningPostgres) -> None:
    with SimEngine("m") as engine:
        config = f"""
[backends.a]
driver = "sim"
url = "{engine.url}"
models = ["m"]
[usage]
store = "postgres"
[plugins.postgres]
url = "env:DATABASE_URL"
[[auth.keys]]
name = "ann"
key = "secret-of-ann"
[[auth.keys]]
name = "ops"
key = "secret-of-ops"
admin = true
"""
        with RunningGateway(config, {"DATABASE_URL": postgres.url}, key="secret-of-ops") as gateway:
            gateway.until_health(a="healthy")
            headers = {"authorization": "Bearer secret-of-ann"}
            for _ in range(3):
                body = {"model": "m", "prompt": "x", "max_tokens": 2}
                answer = httpx.post(f"{gateway.url}/v1/completions", json=body, headers=headers, timeout=30)
                assert answer.status_code == 200
            gateway.until(lambda _: _requests(gateway) == 3)
    with psycopg.connect(postgres.url) as connection:
        found = connection.execute("SELECT key, requests FROM enginehouse.usage").fetchall()
    assert found == [("ann", 3)]


def _requests(gateway: RunningGateway) -> int:
    headers = {"authorization": "Bearer secret-of-ann"}
    page = httpx.get(f"{gateway.url}/v1/usage", headers=headers, timeout=30).json()
    number: int = page["total"]["requests"]
    return number
