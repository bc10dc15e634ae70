"""Observers get the records of requests. However slow they are, requests have most of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from enginehouse import Observer, RequestRecord
from enginehouse.telemetry.observers import Observers
from enginehouse.telemetry.plugin_times import PluginTimes
from enginehouse.telemetry.record_delivery import RecordDelivery
from enginehouse_kit.testing import request_record


class Turns:
    """A clock, and the event loop of a delivery: ``pauses`` before each turn, 0 for one that comes at once."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self._due: Callable[[], None] | None = None

    def clock(self) -> float:
        return self.now

    def loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)

    def call_soon(self, callback: Callable[[], None]) -> Any:
        return self.call_later(0.0, callback)

    def call_later(self, delay: float, callback: Callable[[], None]) -> Any:
        assert self._due is None, "one turn at a time"
        self.pauses.append(delay)
        self._due = callback
        return self

    def cancel(self) -> None:
        self._due = None

    def turn(self) -> bool:
        """Run what is due next; whether anything was."""
        due, self._due = self._due, None
        if due is not None:
            due()
        return due is not None


class Slow(Observer):
    """Takes ``takes`` seconds for each record."""

    def __init__(self, turns: Turns, takes: float) -> None:
        self.ids: list[str] = []
        self._turns = turns
        self._takes = takes

    def finished(self, record: RequestRecord) -> None:
        self._turns.now += self._takes
        self.ids.append(record.id)


class Broken(Observer):
    def finished(self, record: RequestRecord) -> None:
        raise ValueError("no")


@pytest.fixture
def turns() -> Turns:
    return Turns()


def delivery(turns: Turns, *observers: Observer, most: int = 100) -> RecordDelivery:
    return RecordDelivery(Observers(observers).callbacks("finished"), turns.clock, turns.loop, most)


def add(it: RecordDelivery, count: int) -> list[str]:
    """The ids of ``count`` new records."""
    ids = [f"r{number}" for number in range(count)]
    for id in ids:
        it.add(request_record(id=id))
    return ids


def test_quick_observers_get_all_records_on_the_next_turn(turns: Turns) -> None:
    quick = Slow(turns, 0.0)
    ids = add(delivery(turns, quick), 50)
    assert quick.ids == []
    assert turns.turn()
    assert (quick.ids, turns.pauses) == (ids, [0.0])
    assert not turns.turn()


def test_slow_observers_leave_four_fifths_of_the_time(turns: Turns) -> None:
    slow = Slow(turns, 0.004)
    ids = add(delivery(turns, slow), 5)
    assert turns.turn()
    assert slow.ids == ids[:2], "the third would begin after 5 ms"
    while turns.turn():
        pass
    assert slow.ids == ids
    assert turns.pauses == pytest.approx([0.0, 0.032, 0.032])


def test_records_that_come_meanwhile_wait_for_their_turn(turns: Turns) -> None:
    slow = Slow(turns, 0.01)
    it = delivery(turns, slow)
    for _ in range(2):
        add(it, 1)
    turns.turn()
    add(it, 1)
    assert len(slow.ids) == 1
    assert turns.pauses == pytest.approx([0.0, 0.04])


def test_no_more_than_most_records_wait(turns: Turns, caplog: pytest.LogCaptureFixture) -> None:
    slow = Slow(turns, 0.0)
    it = delivery(turns, slow, most=3)
    ids = add(it, 5)
    turns.turn()
    assert (slow.ids, it.dropped[()]) == (ids[:3], 2)
    assert caplog.text.count("records of requests were dropped") == 1


def test_an_observer_that_fails_costs_no_other_its_record(turns: Turns, every_failure: None) -> None:
    other = Slow(turns, 0.0)
    ids = add(delivery(turns, Broken(), other), 2)
    turns.turn()
    assert other.ids == ids


def test_a_gateway_that_stops_delivers_what_is_left(turns: Turns) -> None:
    slow = Slow(turns, 1.0)
    it = delivery(turns, slow)
    ids = add(it, 3)
    turns.turn()
    it.close()
    assert slow.ids == ids
    assert not turns.turn()


def test_the_time_of_an_observer_is_sampled(turns: Turns) -> None:
    observers, times = Observers([Slow(turns, 0.0)]), PluginTimes()
    it = RecordDelivery(observers.callbacks("finished"), turns.clock, turns.loop)
    times.sample(observers.sampled)
    add(it, 2)
    turns.turn()
    [(plugin, histogram)] = times.by_plugin.items()
    assert (plugin.kind, sum(histogram.counts)) == ("observer", 1)


def test_a_slow_observer_rests_also_while_no_record_waits(turns: Turns) -> None:
    """Clients that ask one after the other have four fifths of the loop, too."""
    slow = Slow(turns, 0.05)
    it = delivery(turns, slow)
    it.add(request_record(id="first"))
    assert turns.turn()
    turns.now += 0.01
    it.add(request_record(id="second"))
    assert turns.pauses == pytest.approx([0.0, 0.19])
    turns.now += 0.19
    assert turns.turn()
    turns.now += 1.0
    it.add(request_record(id="third"))
    assert turns.pauses[2:] == [0.0]
    assert turns.turn()
    assert slow.ids == ["first", "second", "third"]
