from __future__ import annotations

from enginehouse.telemetry.activity import Activity
from enginehouse.testing import request_record
from tests.support.request_facts import facts_of


def test_the_last_requests_are_kept_and_all_are_counted() -> None:
    activity = Activity(most=2)
    for name in "abc":
        activity.add(1000.0, facts_of(request_record(id=name)), [], "")
    assert [(each.number, each.record.id) for each in activity.newest_first()] == [(3, "c"), (2, "b")]
    assert activity.count == 3


def test_a_large_head_is_cut() -> None:
    activity = Activity(most=2)
    small, large = [(b"user-agent", b"a" * 1000)], [(b"x-%d" % number, b"b" * 10_000) for number in range(100)]
    for headers in (small, large):
        activity.add(0.0, facts_of(request_record()), headers, "::1")
    kept, cut = [ended.headers for ended in activity.since(0)]
    assert kept is small
    assert sum(len(value) for _, value in cut) <= 32 * 256
