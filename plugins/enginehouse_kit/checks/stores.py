"""The conformance checks of limit stores and usage stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import msgspec

from enginehouse.callers import AuditEntry, LimitRule, UsageRow
from enginehouse_kit.expect import expect
from enginehouse_kit.limit_stores import LimitStore
from enginehouse_kit.limits.leased_limits import LeaseAsk, LeasedLimitStore
from enginehouse_kit.usage_stores import UsageStore

_MINUTE = LimitRule(60, "minute")
_TOTALS = (LimitRule(60, "day"), LimitRule(60, "month"))
_AT_ONCE = LimitRule(3, "at_once")
_SLACK = 2.0
"""What a limit of 60 a minute may refill during the check."""


def check_limit_store(factory: Callable[[], LimitStore], url: str = "") -> None:
    """Check that limits hold, that what is given back can be taken again, and that a new amount keeps what was taken.

    Call it in a synchronous test. ``url``: as ``limits.url``; a shared store must be reachable, and is checked with two
    gateways. The names of its limits are new each time.
    """
    asyncio.run(_check_limits(factory(), url))


async def _check_limits(store: LimitStore, url: str) -> None:
    store.prepare(url, time.monotonic, time.time)
    await store.open()
    try:
        if isinstance(store, LeasedLimitStore):
            await _check_leases(store)
        else:
            for rule in (_MINUTE, *_TOTALS, _AT_ONCE):
                _check_limit(store, rule)
    finally:
        await store.close()


def _check_limit(store: LimitStore, rule: LimitRule) -> None:
    name, most = _name(), int(rule.amount)
    limit = store.limit(name, rule)
    for taken in range(most):
        expect(limit.seconds_short(1) == 0, f"{rule}: 1 must be left when {taken} of {most} are taken")
        limit.take(1)
    expect(limit.seconds_short(1) > 0, f"{rule}: nothing must be left when all is taken")
    expect(limit.left() < 1, f"{rule}: left() must be less than 1 when all is taken, got {limit.left()!r}")
    limit.take(-2)
    expect(limit.seconds_short(2) == 0, f"{rule}: what was given back must be there again")
    expect(limit.full_in() >= 0, f"{rule}: full_in() must not be negative, got {limit.full_in()!r}")
    more = store.limit(name, rule._replace(amount=most + 5))
    expect(more.seconds_short(7) == 0, f"{rule}: a larger amount must keep what is left, and add the difference")
    expect(more.seconds_short(most + 5) > 0, f"{rule}: a larger amount must keep what was taken")


async def _check_leases(store: LeasedLimitStore) -> None:
    for rule in (_MINUTE, *_TOTALS):
        await _check_shared(store, rule)
    name = _name()
    first = await _granted(store, "one", LeaseAsk(name, _AT_ONCE, 2))
    second = await _granted(store, "two", LeaseAsk(name, _AT_ONCE, 2))
    expect((first, second) == (2, 1), f"of 3 at once, two gateways that want 2 get 2 and 1, got {first} and {second}")
    await _granted(store, "one", LeaseAsk(name, _AT_ONCE, 1))
    again = await _granted(store, "two", LeaseAsk(name, _AT_ONCE, 2))
    expect(again == 2, f"a gateway that holds less must leave the rest to others: 2 wanted, got {again}")


async def _check_shared(store: LeasedLimitStore, rule: LimitRule) -> None:
    name = _name()
    first = await _granted(store, "one", LeaseAsk(name, rule, 40))
    second = await _granted(store, "two", LeaseAsk(name, rule, 40))
    expect(first == 40, f"{rule}: a first lease of 40 must be granted, got {first}")
    expect(20 <= second <= 20 + _SLACK, f"{rule}: 20 are left for another gateway, got {second}")
    answer = await store.lease("two", [LeaseAsk(name, rule, 10)])
    expect(answer.leases[0].wait > 0, f"{rule}: a lease that is not granted must say when there may be more")
    expect(answer.gateways >= 2, f"two gateways have asked, but gateways is {answer.gateways}")
    await _granted(store, "one", LeaseAsk(name, rule, 0, back=30))
    again = await _granted(store, "two", LeaseAsk(name, rule, 30))
    expect(again >= 30 - _SLACK, f"{rule}: what one gateway gives back must be there for another, got {again} of 30")


async def _granted(store: LeasedLimitStore, gateway: str, ask: LeaseAsk) -> float:
    answer = await store.lease(gateway, [ask])
    expect(len(answer.leases) == 1, f"lease must answer each ask, got {answer!r}")
    granted = answer.leases[0].granted
    expect(0 <= granted <= ask.want, f"a lease must be from 0 to what is wanted ({ask.want}), got {granted}")
    return granted


def _name() -> str:
    return f"check/{uuid4().hex}"


_HOUR_S = 3600
_NAMES = 4
"""The first fields of a row say what it is the sum of: hour, key, model and user."""


def check_usage_store(factory: Callable[[], UsageStore]) -> None:
    """Check that sums add up, in any thread, are there in a second store of the same folder, and are forgotten.

    The store must be empty.
    """
    with TemporaryDirectory() as folder:
        _check_sums(factory, Path(folder) / "state")


def _check_sums(factory: Callable[[], UsageStore], folder: Path) -> None:
    hour = int(time.time()) // _HOUR_S * _HOUR_S
    entry = AuditEntry(time.time(), "ops", "127.0.0.1", "POST /api/reload", 200, "done")
    store = factory()
    store.prepare(folder)
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(store.add, [_usage_row(hour, "alice"), _usage_row(hour, "bob")], [entry]).result()
    store.add([_usage_row(hour, "alice"), _usage_row(hour - _HOUR_S, "alice")], [])
    _check_names(store, hour - 2 * _HOUR_S)
    _expect_sums(
        store.usage(hour - _HOUR_S, hour + 1), {(hour, "alice"): 2, (hour, "bob"): 1, (hour - _HOUR_S, "alice"): 1}
    )
    _expect_sums(store.usage(hour, hour + 1), {(hour, "alice"): 2, (hour, "bob"): 1})
    _expect_sums(store.sums(hour, hour + 1, ("hour", "key")), {(hour, "alice"): 2, (hour, "bob"): 1}, None, None)
    _expect_sums(store.sums(hour, hour + 1, ("hour", "key"), "bob"), {(hour, "bob"): 1}, None, None)
    expect(
        len(store.sums(hour, hour + 1, ("key",), None, 1)) == 1, "sums must return no more rows than it is asked for"
    )
    expect(list(store.audit(0, 10)) == [entry], f"audit must return the entries, got {store.audit(0, 10)!r}")
    expect(not store.audit(entry.time + 1, 10), "audit must not return older entries than it is asked for")
    store.close()
    again = factory()
    again.prepare(folder)
    _expect_sums(again.usage(hour, hour + 1), {(hour, "alice"): 2, (hour, "bob"): 1})
    again.forget(hour)
    _expect_sums(again.usage(0, hour + 1), {(hour, "alice"): 2, (hour, "bob"): 1})
    again.forget(time.time() + 1)
    expect(not again.usage(0, hour + 1) and not again.audit(0, 10), "forget must drop everything that is older")
    again.close()


def _check_names(store: UsageStore, hour: int) -> None:
    """A name that cannot be stored would keep all others from being stored: what fails is added again and again."""
    try:
        store.add([UsageRow(hour, "alice", "m", "a\0'\n\U0001f600" + 250 * "\uffff", requests=1)], [])
    except Exception as error:
        raise AssertionError(f"clients name end users, so any text must be stored, got {error!r}") from error
    found = sum(row.requests for row in store.usage(hour, hour + 1))
    expect(found == 1, f"a row with any name must be stored once, got {found}")
    store.forget(hour + 1)


def _usage_row(hour: int, key: str) -> UsageRow:
    """A row in which every figure is another one, and those that need not be whole are not."""
    figures = msgspec.structs.fields(UsageRow)[_NAMES:]
    values: list[Any] = [number if field.type is int else number + 0.125 for number, field in enumerate(figures, 1)]
    return UsageRow(hour, key, "m", "", *values)


def _expect_sums(
    rows: Sequence[UsageRow], times: dict[tuple[int, str], int], model: str | None = "m", user: str | None = ""
) -> None:
    found = {(row.hour, row.key): row for row in rows}
    expect(
        found.keys() == times.keys(),
        f"there must be one sum for each of {sorted(times)}, got {sorted(map(str, found))}",
    )
    for names, number in times.items():
        wanted = _usage_row(*names)
        for _ in range(number - 1):
            wanted.add(_usage_row(*names))
        wanted.model, wanted.user = model, user
        expect(found[names] == wanted, f"the sum of {names} must be {wanted}, got {found[names]}")
