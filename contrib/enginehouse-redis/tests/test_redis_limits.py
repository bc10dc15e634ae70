from __future__ import annotations

import asyncio
import calendar
import datetime
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from enginehouse_redis.redis_limits import RedisLimits
from redis import Redis
from running_redis import SERVER, RunningRedis

from enginehouse import ConfigError
from enginehouse.callers import LimitRule
from enginehouse_kit.limits import LeaseAsk, LeaseBook
from enginehouse_kit.testing import check_limit_store, create

needs_redis = pytest.mark.skipif(SERVER is None, reason="redis-server is not installed")


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RunningRedis]:
    with RunningRedis(tmp_path) as running:
        yield running


_PAUSE_S = 0.002


class PatientLimits(RedisLimits):
    """For tests that ask Redis themselves, on a busy machine too."""

    patience = 20.0


def prepared(url: str, kind: type[RedisLimits] = RedisLimits) -> RedisLimits:
    store = kind()
    store.prepare(url, time.monotonic, time.time)
    return store


async def poll(holds: Callable[[], object], what: str, seconds: float = 40) -> float:
    """Wait until it ``holds``. How long that took, without the time in which a busy machine let this process wait."""
    began = now = time.monotonic()
    held_up = 0.0
    while not holds():
        assert now < began + seconds, f"never: {what}"
        await asyncio.sleep(_PAUSE_S)
        before, now = now, time.monotonic()
        held_up += now - before - _PAUSE_S
    return now - began - held_up


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 50)

    asyncio.run(limited())


@needs_redis
def test_it_passes_the_check_of_limit_stores(redis: RunningRedis) -> None:
    assert type(create("limit_store", "redis")) is RedisLimits
    check_limit_store(PatientLimits, redis.url)


@pytest.mark.parametrize("url", ["", "http://127.0.0.1", "redis://:secret@127.0.0.1:port/0"])
def test_an_address_that_cannot_be_used_is_an_error_without_the_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"limits\.url") as caught:
        prepared(url)
    assert "secret" not in str(caught.value)


@needs_redis
@pytest.mark.parametrize("per", ["minute", "day", "month", "at_once"])
def test_the_script_grants_what_the_rules_in_python_grant(redis: RunningRedis, per: str) -> None:
    async def test() -> None:
        store, chance = prepared(redis.url, PatientLimits), random.Random(7)
        book = LeaseBook(time.monotonic, time.time)
        for turn in range(300):
            rule = LimitRule(20.0 if turn < 150 else 30.0, per)  # type: ignore[arg-type]
            gateway, want = chance.choice("ab"), float(chance.randrange(9))
            back = 0.0 if per == "at_once" or want else float(chance.randrange(3))
            ask = LeaseAsk("k/x", rule, want, back)
            theirs, ours = (await store.lease(gateway, [ask])), book.lease(gateway, [ask])
            assert theirs.gateways == ours.gateways
            assert theirs.leases[0].granted == pytest.approx(ours.leases[0].granted, abs=0.5)
            assert theirs.leases[0].left == pytest.approx(ours.leases[0].left, abs=0.5)
            assert theirs.leases[0].wait == pytest.approx(ours.leases[0].wait, abs=2)
        await store.close()

    run(test)


@needs_redis
def test_a_month_ends_with_its_last_day(redis: RunningRedis) -> None:
    """Redis tells the time, so the script is asked with other clocks."""
    script = (Path(__file__).parent.parent / "src/enginehouse_redis/lease.lua").read_text()
    head, tail = script.split("local clock = redis.call('TIME')\n")
    asked = head + "local clock = { ARGV[6], '0' }\n" + tail
    client = Redis.from_url(redis.url)
    for year, month, day in ((2024, 2, 28), (2024, 2, 29), (2026, 2, 28), (2026, 12, 31), (2027, 1, 1), (2100, 2, 28)):
        noon = datetime.datetime(year, month, day, 12, tzinfo=datetime.timezone.utc).timestamp()
        answer = client.eval(asked, 2, "g", f"k{noon}", "one", "month", 1, 9, 0, int(noon))
        days = calendar.monthrange(year, month)[1] - day
        assert float(answer[2]) == (days + 0.5) * 86400
    client.close()


@needs_redis
def test_two_gateways_admit_the_limit(redis: RunningRedis) -> None:
    async def test() -> None:
        stores = [prepared(redis.url) for _ in range(2)]
        limits = [each.limit("ann/requests", LimitRule(60, "minute")) for each in stores]
        for each in stores:
            await each.open()
        await poll(lambda: all(each.gateways == 2 for each in stores), "they see each other")
        admitted, began, lost = 0, time.monotonic(), False
        while admitted < 60 or time.monotonic() < began + 3:
            lost = lost or any(each.problem() for each in stores)
            for limit in limits:
                if limit.seconds_short(1) == 0:
                    limit.take(1)
                    admitted += 1
            await asyncio.sleep(0.005)
        for each in stores:
            await each.close()
        refilled = time.monotonic() - began
        assert admitted <= 60 + refilled + 2 + 60 * lost, admitted  # one lease each; a slow machine may lose Redis

    run(test)


@needs_redis
@pytest.mark.parametrize("how", ["stopped", "killed", "wrong"])
def test_a_lost_store_delays_nobody_and_each_gateway_keeps_to_its_share(redis: RunningRedis, how: str) -> None:
    async def test() -> None:
        stores = [prepared(redis.url) for _ in range(2)]
        limits = [each.limit("ann/requests", LimitRule(600, "minute")) for each in stores]
        for each in stores:
            await each.open()
        await poll(lambda: all(each.gateways == 2 for each in stores), "they see each other")
        redis.spoil(how)
        limits[0].seconds_short(1)
        await poll(
            lambda: [limit.seconds_short(1) for limit in limits] and all(e.problem() for e in stores), "it is lost"
        )
        admitted, times, began = 0, [], time.monotonic()
        while time.monotonic() < began + 2:
            for limit in limits:
                for _ in range(20):
                    before = time.perf_counter()
                    if limit.seconds_short(1) == 0:
                        limit.take(1)
                        admitted += 1
                    times.append(time.perf_counter() - before)
            await asyncio.sleep(0.01)
        exact = 600 + 600 * (time.monotonic() - began) / 60
        assert exact / 2 <= admitted <= 2 * exact, admitted
        times.sort()
        middle, high = times[len(times) // 2], times[len(times) * 99 // 100]
        assert high < 0.001
        redis.repair(how)
        took = await poll(lambda: not any(each.problem() for each in stores), "it is back")
        for each in stores:
            await each.close()
        print(f"{how}: admitted {admitted}, exact {exact:.0f}, back after {took * 1000:.0f} ms")
        figures = [f"{each * 1e6:.1f}" for each in (middle, high, times[-1])]
        print(f"an admission takes in us: median, 99th percentile, most: {figures}")
        assert took < 1, took

    run(test)


@needs_redis
def test_a_gateway_that_is_gone_gives_its_slots_back(redis: RunningRedis) -> None:
    async def test() -> None:
        one, two = prepared(redis.url, PatientLimits), prepared(redis.url)
        rule = LimitRule(2, "at_once")
        assert (await one.lease("gone", [LeaseAsk("ann/slots", rule, 2)])).leases[0].granted == 2
        limit = two.limit("ann/slots", rule)
        await two.open()
        limit.seconds_short(1)
        await poll(lambda: limit.left() <= 0, "both are known to be taken")
        assert await poll(lambda: limit.seconds_short(1) == 0, "they are free again") < 5
        await two.close()
        await one.close()

    run(test)
