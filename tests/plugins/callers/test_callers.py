"""Callers of a gateway that is not served: what was used before it started counts, and nothing waits for a provider."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import enginehouse_callers
from enginehouse import Requirements
from enginehouse.aio.clock import Clock
from enginehouse.app.callers import Callers
from enginehouse.callers import AuditEntry, UsageRow
from enginehouse.config.auth import LimitAmounts
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.domain.errors import BudgetExhausted, ConfigError
from enginehouse.errors import RateLimited
from enginehouse.interfaces.observers import Observer
from enginehouse.plugin_manager.discovery import collect
from enginehouse.telemetry.observers import Observers
from enginehouse_callers.accounts import Account
from enginehouse_callers.kept_key import NewKey
from enginehouse_kit.testing import request_record
from tests.support.fake_clock import StoppedClock
from tests.support.request_facts import facts_of
from tests.support.waiting import within

REGISTRY = collect(PluginSettings(enabled=[])).registry
NOON = 86400.0 * 20000 + 43200  # 2024-10-04


class Context:
    """As much of a relay's context as callers use."""

    usage: Any = None
    asks_usage = False

    def __init__(self, clock: Clock) -> None:
        self.clock = clock


class Running:
    def __init__(self, folder: Path, now: float, observer: Observer | None = None, **sections: Any) -> None:
        clock = StoppedClock(now)
        keys = [{"name": "a", "key": "a", "tokens_per_day": 1000, "budget_per_month": 1.0}]
        config = msgspec.convert({"auth": {"keys": keys}, "prices": {"m": {"output": 100.0}}, **sections}, Config)
        observers = Observers([observer] if observer is not None else [])
        self.context = Context(Clock(clock, clock))
        self.callers = Callers(config, REGISTRY, self.context.clock)
        self.callers.count(self.context, observers)  # type: ignore[arg-type]
        self.callers.open(folder)

    def use(self, tokens: int, caller: str = "a") -> None:
        self.context.usage.add(facts_of(request_record(caller=caller, tokens_in=0, tokens_out=tokens)), "m", 0)

    @property
    def counting(self) -> enginehouse_callers.Callers:
        assert isinstance(self.callers.accounting, enginehouse_callers.Callers)
        return self.callers.accounting

    def admit(self) -> None:
        holder = self.counting.keyring.named("a")
        assert holder is not None
        holder.admit(Requirements(model="m"), 1)


async def restarted(folder: Path, now: float, tokens: int, caller: str = "a", **sections: Any) -> Running:
    """A gateway that starts ``now``, after one that used so many tokens at noon."""
    first = Running(folder, NOON, **sections)
    await first.callers.start()
    first.use(tokens, caller)
    await first.callers.close()
    second = Running(folder, now, **sections)
    await second.callers.start()
    return second


async def test_what_is_left_of_limits_is_known(tmp_path: Path) -> None:
    more = [{"models": ["m*"], "requests_per_minute": 60}, {"per": "user", "requests_per_minute": 9}]
    key = {"name": "a", "key": "a", "tokens_per_day": 1000, "budget_per_month": 1.0, "limits": more}
    running = Running(tmp_path, NOON, auth={"keys": [key, {"name": "b", "key": "b"}]})
    running.admit()
    left = [(each.limit, each.models, each.amount, round(each.left)) for each in running.counting.limits_left("a")]
    assert left == [
        ("tokens_per_day", ("*",), 1000, 999),
        ("budget_per_month", ("*",), 1, 1),
        ("requests_per_minute", ["m*"], 60, 59),
    ]
    assert [*running.counting.limits_left("b"), *running.counting.limits_left("nobody")] == []
    assert running.counting.cost("m", 5, 0, 1000) == pytest.approx(0.1)
    assert running.counting.cost("without a price", 5, 0, 1000) == 0.0


async def test_a_running_request_takes_the_price_of_its_whole_prompt_from_a_budget(tmp_path: Path) -> None:
    auth = {"keys": [{"name": "a", "key": "a", "budget_per_month": 1.0}]}
    running = Running(tmp_path, NOON, auth=auth, prices={"m": {"input": 1000.0, "cached": 0.0}})
    holder = running.counting.keyring.named("a")
    assert holder is not None
    holder.admit(Requirements(model="m", estimated_tokens=500), 0)
    (left,) = running.counting.limits_left("a")
    assert left.left == pytest.approx(0.5)


async def test_it_is_known_when_a_key_was_seen_last_within_a_month(tmp_path: Path) -> None:
    first = Running(tmp_path, NOON)
    await first.callers.start()
    first.use(10)
    await first.callers.close()
    for later, seen in ((0.0, True), (29 * 86400.0, True), (32 * 86400.0, False)):
        again = Running(tmp_path, NOON + later)
        await again.callers.start()
        known = await again.counting._last_used()
        assert ("a" in known) is seen, later
        await again.callers.close()


async def test_what_was_used_before_a_restart_counts_against_limits(tmp_path: Path) -> None:
    again = await restarted(tmp_path, NOON + 60, 1000)
    with pytest.raises(RateLimited, match="tokens_per_day"):
        again.admit()
    await again.callers.close()


async def test_the_tokens_of_yesterday_do_not_count_but_its_costs_do(tmp_path: Path) -> None:
    again = await restarted(tmp_path, NOON + 86400, 9000)
    again.admit()
    await again.callers.close()
    again = await restarted(tmp_path / "other", NOON + 86400, 10_001)
    with pytest.raises(BudgetExhausted, match="budget_per_month"):
        again.admit()
    await again.callers.close()


async def test_the_costs_of_yesterday_do_not_count_against_the_budget_of_a_day(tmp_path: Path) -> None:
    auth = {"keys": [{"name": "a", "key": "a", "budget_per_day": 1.0}]}
    again = await restarted(tmp_path, NOON + 86400, 9000, auth=auth)
    (left,) = again.counting.limits_left("a")
    assert left.left == pytest.approx(1.0)
    await again.callers.close()


async def test_the_next_month_begins_anew(tmp_path: Path) -> None:
    again = await restarted(tmp_path, NOON + 31 * 86400, 10_001)
    again.admit()
    await again.callers.close()


async def test_those_whom_tokens_name_are_counted_before_they_show_one(tmp_path: Path) -> None:
    auth = {"jwt": {"issuer": "https://login.example.org", "audience": "house", "tokens_per_day": 1000}}
    name = "jwt/https://login.example.org/a"
    again = await restarted(tmp_path, NOON + 60, 1000, name, auth=auth)
    ann = Account(name, again.counting.keyring.limits, "Ann", passing=True)
    ann.configure(LimitAmounts(tokens_per_day=1000))
    with pytest.raises(RateLimited, match="tokens_per_day"):
        ann.admit(Requirements(model="m"), 1)
    await again.callers.close()


async def test_without_a_store_nothing_is_counted(tmp_path: Path) -> None:
    running = Running(tmp_path, NOON, usage={"store": "none"})
    assert running.context.usage is None
    await running.callers.start()
    await running.callers.close()
    assert not (tmp_path / "usage.sqlite").exists()


def test_an_unknown_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown usage store 'sqlight'"):
        Running(tmp_path, NOON, usage={"store": "sqlight"})


async def test_a_provider_that_does_not_answer_keeps_nothing_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def hang(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("enginehouse_callers.token_authenticator.ProviderKeys.refresh", hang)
    auth = {"jwt": {"issuer": "https://login.example.org", "audience": "house"}}
    running = Running(tmp_path, NOON, auth=auth)
    await within(running.callers.start())
    await within(asked.wait())
    await within(running.callers.close())


async def test_observers_learn_what_operators_do(tmp_path: Path) -> None:
    heard: list[AuditEntry] = []

    class Ear(Observer):
        def operated(self, entry: AuditEntry) -> None:
            heard.append(entry)

    running = Running(tmp_path, NOON, Ear())
    entry = AuditEntry(NOON, "ops", "127.0.0.1", "POST /api/reload", 200)
    running.callers.note(entry)
    assert heard == [entry]


async def test_the_log_says_that_nobody_may_operate_the_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = Running(tmp_path, NOON, auth={})
    first.counting._kept.new(NewKey(name="boss", admin=True), first=True)
    assert not caplog.records
    (tmp_path / "keys.json").unlink()
    Running(tmp_path, NOON, auth={})
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "keys.required" in caplog.text


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], False),
        ([{"admin": False}], False),
        ([{"admin": True, "expires": "2024-10-03"}], False),
        ([{"admin": False}, {"admin": True, "expires": "2024-10-06"}], True),
    ],
)
def test_operators_are_those_whose_keys_are_valid(
    tmp_path: Path, keys: list[dict[str, object]], expected: bool
) -> None:
    named = [{"name": str(number), "key": f"secret-{number}", **each} for number, each in enumerate(keys)]
    running = Running(tmp_path, NOON, auth={"keys": named})
    assert running.counting.has_operators() is expected
    assert running.callers.authentication.has_operators is (expected or not keys)


async def test_what_another_process_has_taken_is_known_by_its_key(tmp_path: Path) -> None:
    running = Running(tmp_path, NOON, auth={"keys": [{"name": "a", "key": "a"}]})
    running.counting.keeper.meter.receive([UsageRow(int(NOON), "a", "m", cost=2.0)])
    assert running.counting.keeper.meter.last_used == {"a": NOON}
