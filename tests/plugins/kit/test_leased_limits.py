"""Gateways that share limits by leases, without a network and with a clock that stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from enginehouse.callers import LimitRule
from enginehouse_kit.limit_stores import Limit
from enginehouse_kit.limits import LeaseAsk, LeaseBook, LeasedLimitStore, Leases
from enginehouse_kit.testing import check_limit_store
from tests.support.fake_clock import StoppedClock

MINUTE = LimitRule(10, "minute")
SLOTS = LimitRule(2, "at_once")


class Gateways:
    """Some gateways and the book that they share."""

    def __init__(self, number: int) -> None:
        self.clock = StoppedClock(1000.0)
        self.book = LeaseBook(self.clock, self.clock)
        self.lost = False
        self.stores = [Shared(self) for _ in range(number)]

    async def exchange(self) -> None:
        for store in self.stores:
            await store.exchange()

    async def known(self, rule: LimitRule) -> list[Limit]:
        """The limits of gateways that have seen each other."""
        for _ in range(2):
            await self.exchange()
            self.clock.now += 2
        return self.limits(rule)

    def limits(self, rule: LimitRule) -> list[Limit]:
        return [store.limit("alice/limit", rule) for store in self.stores]


class Shared(LeasedLimitStore):
    def __init__(self, gateways: Gateways) -> None:
        super().__init__()
        self.asked = 0
        self._gateways = gateways
        self.prepare("", gateways.clock, gateways.clock)

    async def lease(self, gateway: str, asks: Sequence[LeaseAsk]) -> Leases:
        self.asked += 1
        if self._gateways.lost:
            raise ConnectionError("refused")
        return self._gateways.book.lease(gateway, asks)


def admitted(limit: Limit, times: int) -> int:
    count = 0
    for _ in range(times):
        if limit.seconds_short(1) == 0:
            limit.take(1)
            count += 1
    return count


async def test_one_busy_gateway_gets_all_of_a_limit() -> None:
    gateways = Gateways(4)
    busy = gateways.limits(MINUTE)[0]
    await gateways.exchange()
    got = 0
    for _ in range(40):
        got += admitted(busy, 1)
        await gateways.exchange()
    assert got == 10


async def test_gateways_together_take_what_the_limit_allows() -> None:
    gateways = Gateways(4)
    limits = await gateways.known(MINUTE)
    got = 0
    for second in range(120):
        for limit in limits:
            got += admitted(limit, 3)
        await gateways.exchange()
        gateways.clock.now += 1
        if second == 0:
            assert got <= 10
    assert 28 <= got <= 34, "10 at once and 20 in two minutes, and at most one on credit at each"


async def test_what_is_left_of_leases_goes_back() -> None:
    gateways = Gateways(2)
    first, second = gateways.limits(MINUTE)
    assert admitted(first, 4) >= 1
    for _ in range(20):
        await gateways.exchange()
        gateways.clock.now += 0.1
    gateways.clock.now += 60
    got = 0
    for _ in range(20):
        got += admitted(second, 1)
        await gateways.exchange()
    assert got == 10, "the first gateway holds nothing back"


async def test_places_are_shared_and_come_back() -> None:
    gateways = Gateways(4)
    first, second, third, _ = await gateways.known(SLOTS)
    assert admitted(first, 1) == 1
    await gateways.exchange()
    assert admitted(second, 1) == 1
    await gateways.exchange()
    await gateways.exchange()
    assert admitted(first, 3) == 0
    assert admitted(third, 1) == 1, "a gateway that knows nothing yet takes one on credit"
    await gateways.exchange()
    assert admitted(third, 1) == 0
    for limit in (first, second, third):
        limit.take(-1)
    for _ in range(2):
        await gateways.exchange()
        gateways.clock.now += 1
    assert admitted(third, 1) == 1


async def test_a_gateway_that_is_gone_gives_its_places_back() -> None:
    gateways = Gateways(2)
    first, second = gateways.limits(SLOTS)
    assert admitted(first, 2) >= 1
    await gateways.stores[0].exchange()
    admitted(first, 2)
    await gateways.stores[0].exchange()
    gateways.clock.now += 10
    assert admitted(second, 1) == 1
    await gateways.stores[1].exchange()
    assert admitted(second, 1) == 1, "the places of the first one have run out"


async def test_without_the_store_each_gateway_keeps_to_its_share(caplog: pytest.LogCaptureFixture) -> None:
    gateways = Gateways(2)
    limits = await gateways.known(MINUTE)
    for limit in limits:
        admitted(limit, 1)
    await gateways.exchange()
    gateways.lost = True
    gateways.clock.now += 60
    got = [0, 0]
    for _ in range(20):
        for number, limit in enumerate(limits):
            got[number] += admitted(limit, 1)
        await gateways.exchange()
    assert all(4 <= each <= 8 for each in got), got
    assert "refused" in gateways.stores[0].problem()
    assert caplog.text.count("The limit store is lost") == 2, "once for each gateway"
    gateways.lost = False
    admitted(limits[0], 1)
    await gateways.exchange()
    assert gateways.stores[0].problem() == ""


async def test_a_store_that_is_lost_again_and_again_does_not_grant_the_share_anew() -> None:
    gateways = Gateways(2)
    limits = await gateways.known(MINUTE)
    got = 0
    for turn in range(40):
        gateways.lost = turn % 2 == 0
        for _ in range(5):
            got += sum(admitted(limit, 1) for limit in limits)
            await gateways.exchange()
    assert MINUTE.amount <= got <= 2 * MINUTE.amount


async def test_requests_go_on_while_the_loss_of_the_store_is_found_out() -> None:
    gateways = Gateways(2)
    limit = (await gateways.known(LimitRule(600, "minute")))[0]
    store = gateways.stores[0]

    async def lost(gateway: str, asks: Sequence[LeaseAsk]) -> Leases:
        assert admitted(limit, 40) == 40  # an exchange takes time
        raise TimeoutError

    store.lease = lost  # type: ignore[method-assign]
    assert admitted(limit, 1) == 1
    await store.exchange()
    assert store.problem()
    assert admitted(limit, 40) == 40
    assert sum([admitted(limit, 40) for _ in range(20)]) < 600


async def test_a_flood_over_an_exhausted_limit_does_not_flood_the_store() -> None:
    gateways = Gateways(1)
    (limit,) = gateways.limits(MINUTE)
    store = gateways.stores[0]
    await store.open()
    try:
        for _ in range(200):
            admitted(limit, 5)
            await asyncio.sleep(0)
        before = store.asked
        for _ in range(2000):
            admitted(limit, 5)
            await asyncio.sleep(0)
        assert store.asked - before < 100
    finally:
        await store.close()


async def test_a_closed_store_has_given_everything_back() -> None:
    gateways = Gateways(2)
    first, second = gateways.limits(SLOTS)
    await gateways.stores[0].open()
    admitted(first, 2)
    await gateways.stores[0].exchange()
    await gateways.stores[0].close()
    await gateways.stores[1].exchange()
    assert admitted(second, 1) == 1
    await gateways.stores[1].exchange()
    assert admitted(second, 1) == 1


def test_the_book_keeps_the_rules_of_a_limit_store() -> None:
    check_limit_store(lambda: Shared(Gateways(1)))


@pytest.mark.long
async def test_names_without_end_are_forgotten_and_hold_nothing() -> None:
    gateways = Gateways(2)
    one, two = gateways.stores
    await gateways.exchange()
    names = [f"name-{number}" for number in range(12_000)]
    for name in names:
        assert admitted(one.passing_limit(name, MINUTE), 1) == 1
    for _ in range(20):
        await one.exchange()
    assert not one.active, "nothing is asked for names that nobody uses"
    for name in names[:100]:
        assert two.passing_limit(name, MINUTE).seconds_short(1) == 0
    await two.exchange()
    left = [two.passing_limit(name, MINUTE).left() for name in names[:100]]
    assert min(left) == max(left) == pytest.approx(9), "the store knows what forgotten limits have taken, and no more"
