"""What callers have used is summed up by any fields, of any time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from enginehouse import InvalidRequest
from enginehouse.callers import LimitLeft, UsageRow
from enginehouse.runtime import PluginId
from enginehouse_callers import SqliteUsage
from enginehouse_callers.prices import Prices
from enginehouse_callers.usage_keeper import UsageKeeper
from enginehouse_callers.usage_meter import UsageMeter
from enginehouse_kit.usage_stores import UsageStore
from enginehouse_operations.pages.reading import read_time
from enginehouse_operations.pages.usage import OWN_ROUTES, USAGE_ROUTES
from tests.support.fake_clock import StoppedClock
from tests.support.page_facts import page_facts

NOW = 1_700_000_000.0
ROWS = [
    UsageRow(hour, key, model, "", 1, 0, 10, 0, 5, 1.0, 0.5)
    for hour in (1_699_999_200, 1_699_995_600, 1_700_092_800)
    for key in ("alice", "bob")
    for model in ("m", "n")
]


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[UsageKeeper]:
    store = SqliteUsage()
    store.prepare(tmp_path)
    keeper = UsageKeeper(UsageMeter(StoppedClock(NOW), Prices({})), 0, StoppedClock(NOW))
    keeper.use(store, PluginId("usage_store", "sqlite"))
    keeper.meter.put_back(ROWS)
    yield keeper
    await keeper.close()


async def page(keeper: UsageKeeper, target: str, caller: str = "alice") -> Any:
    application = Starlette(routes=[*USAGE_ROUTES, *OWN_ROUTES])
    left = LimitLeft(limit="tokens_per_day", amount=100, left=40, full_in=60)
    application.state.facts = page_facts(
        limits={"alice": [left]}.__getitem__,
        usage=keeper.usage,
        caller=lambda headers: caller,
        epoch=lambda: 1_700_100_000.0,
    )
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(application), base_url="http://gateway", timeout=60
    ) as client:
        return (await client.get(target)).raise_for_status().json()


async def test_a_caller_sees_what_is_left_of_its_limits(keeper: UsageKeeper) -> None:
    assert (await page(keeper, "/v1/limits"))["limits"] == [
        {"limit": "tokens_per_day", "models": ["*"], "amount": 100.0, "left": 40.0, "full_in": 60.0}
    ]


async def test_sums_by_any_fields(keeper: UsageKeeper) -> None:
    by_key = await page(keeper, "/api/usage")
    assert [(row["key"], row["model"], row["requests"], row["cost"]) for row in by_key["rows"]] == [
        ("alice", None, 6, 3.0),
        ("bob", None, 6, 3.0),
    ]
    assert by_key["total"]["tokens_in"] == 120
    by_day = await page(keeper, "/api/usage?by=model,day")
    assert [(row["day"], row["model"], row["requests"]) for row in by_day["rows"]] == [
        ("2023-11-14", "m", 4),
        ("2023-11-14", "n", 4),
        ("2023-11-16", "m", 2),
        ("2023-11-16", "n", 2),
    ]
    (own,) = (await page(keeper, "/v1/usage", "bob"))["rows"]
    assert (own["key"], own["requests"]) == ("bob", 6)


async def test_a_field_that_is_asked_for_again_and_again_counts_once(keeper: UsageKeeper) -> None:
    assert await page(keeper, "/v1/usage?by=" + "day," * 15_000) == await page(keeper, "/v1/usage?by=day")
    with pytest.raises(InvalidRequest, match=r"'by' has 'x{50}'"):
        await page(keeper, "/v1/usage?by=" + "x" * 60_000)


async def test_a_field_of_the_query_that_is_empty_is_as_if_it_were_not_there(keeper: UsageKeeper) -> None:
    assert await page(keeper, "/api/usage?by=key&since=&until=") == await page(keeper, "/api/usage?by=key")


async def test_an_answer_has_a_bounded_number_of_rows(keeper: UsageKeeper) -> None:
    for first in range(0, 22_000, 11_000):
        rows = [UsageRow(1_699_999_200, "alice", "m", f"user-{first + number}", 1) for number in range(11_000)]
        keeper.meter.put_back(rows)
        await keeper.write()
    with pytest.raises(InvalidRequest, match="more than 20000 rows"):
        await page(keeper, "/api/usage?by=user")
    assert (await page(keeper, "/api/usage?by=key"))["total"]["requests"] == 22_012


@pytest.mark.parametrize("key", [None, "alice", "nobody"])
def test_a_database_sums_up_as_the_gateway_would(tmp_path: Path, key: str | None) -> None:
    store = SqliteUsage()
    store.prepare(tmp_path)
    store.add(ROWS, [])
    fields = ("hour", "day", "key", "model", "user")
    for by in (each for number in range(len(fields) + 1) for each in combinations(fields, number)):
        found = store.sums(1_699_996_000, NOW + 1e6, by, key)
        assert sorted(map(str, found)) == sorted(map(str, UsageStore.sums(store, 1_699_996_000, NOW + 1e6, by, key))), (
            by
        )
    store.close()


@pytest.mark.parametrize(
    ("text", "moment"),
    [("7d", NOW - 7 * 86400), ("2023-11-14", 1_699_920_000.0), ("1699920000", 1_699_920_000.0), ("90m", NOW - 5400)],
)
def test_times_in_all_forms(text: str, moment: float) -> None:
    assert read_time(text, NOW) == moment


@pytest.mark.parametrize("text", ["yesterday", "nan", "-inf", "1e400"])
def test_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="write 7d"):
        read_time(text, NOW)
