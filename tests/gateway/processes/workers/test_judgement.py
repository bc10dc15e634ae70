"""A worker judges backends at once by what its requests tell, and the owner has the last word."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from enginehouse import Health
from enginehouse.config.schema import CheckSettings
from enginehouse.fleet.fleet import Fleet
from enginehouse.fleet.live_backend import BackendInfo
from enginehouse.fleet.workers import Answers, BackendView, Latencies, News, OutcomeReports
from enginehouse.processes.workers.reports import take_outcomes
from enginehouse.routing_facts import UNKNOWN
from tests.support.fake_clock import StoppedClock


class Pair:
    """A worker with its owner. ``sent``: what the worker has told and the owner has not read."""

    def __init__(self) -> None:
        self.owner, self.worker = (Fleet(CheckSettings(failures=3, successes=2), StoppedClock(100.0)) for _ in range(2))
        self.sent: list[tuple[Answers, Latencies, News]] = []
        self.outcomes = self.worker.reports = OutcomeReports(lambda *told: self.sent.append(told))
        for fleet in (self.owner, self.worker):
            fleet.add(BackendInfo(name="a", url="http://a", models={"m": UNKNOWN}, health=Health.HEALTHY))

    def view(self) -> BackendView:
        view = self.owner.view("a")
        assert view is not None
        return view

    def owner_reads(self, count: int) -> None:
        for message in self.sent[:count]:
            take_outcomes(self.owner, *message)
            self.outcomes.judged()
        del self.sent[:count]


@pytest.fixture
def pair() -> Pair:
    return Pair()


Report = Callable[[Fleet, str, str], None]


@pytest.mark.parametrize("report", [Fleet.failed, Fleet.doubted])
def test_the_next_request_already_goes_elsewhere(pair: Pair, report: Report) -> None:
    for _ in range(3):
        report(pair.worker, "a", "refused")
    assert pair.worker.health("a") is Health.UNHEALTHY
    assert pair.owner.health("a") is Health.HEALTHY, "it has read nothing yet"
    pair.owner_reads(2)
    assert pair.outcomes.awaits_judgement("a"), "what it tells now is older than the third failure"
    pair.owner_reads(1)
    assert not pair.outcomes.awaits_judgement("a")
    assert pair.owner.health("a") is Health.UNHEALTHY


@pytest.mark.parametrize("report", [Fleet.failed, Fleet.doubted])
def test_failures_of_other_workers_count_too(pair: Pair, report: Report) -> None:
    for _ in range(2):
        report(pair.owner, "a", "refused")
    pair.worker.follow(pair.view())
    assert pair.worker.health("a") is Health.HEALTHY
    report(pair.worker, "a", "refused")
    assert pair.worker.health("a") is Health.UNHEALTHY


def test_the_owner_knows_of_answers_that_other_workers_got(pair: Pair) -> None:
    for _ in range(3):
        pair.worker.failed("a", "refused")
    pair.owner_reads(2)
    pair.owner.succeeded("a")
    pair.owner_reads(1)
    assert not pair.outcomes.awaits_judgement("a")
    pair.worker.follow(pair.view())
    assert pair.worker.health("a") is Health.HEALTHY


def test_answers_wait_for_the_next_beat_and_failures_do_not(pair: Pair) -> None:
    pair.worker.succeeded("a")
    pair.worker.answered(pair.worker.load("a"), 10.0)
    pair.worker.answered(pair.worker.load("a"), 30.0)
    assert not pair.sent
    pair.outcomes.flush()
    assert pair.sent == [({"a": 1}, {"a": (2, 40.0)}, [])]
    assert not pair.outcomes.awaits_judgement("a")
    pair.worker.succeeded("a")
    pair.worker.failed("a", "refused")
    assert pair.sent[1:] == [({"a": 1}, {}, [("failed", ["a", "refused"])])]


def test_the_worker_knows_what_an_engine_reported_of_itself(pair: Pair) -> None:
    load = pair.owner.load("a")
    load.report(3, 0.5, 1000, 90.0)
    load.report_adapters(("lora-1",), 4)
    pair.worker.follow(pair.view())
    seen = pair.worker.load("a")
    assert (seen.engine_waiting, seen.kv_usage, seen.cache_tokens, seen.figures_at) == (3, 0.5, 1000, 90.0)
    assert (seen.adapters, seen.max_adapters) == (("lora-1",), 4)
