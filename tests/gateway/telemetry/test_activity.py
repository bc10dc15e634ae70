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
