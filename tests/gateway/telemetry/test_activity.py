from __future__ import annotations

import pytest

from enginehouse.domain.request_facts import Activity
from enginehouse_kit.testing import request_record
from tests.support.request_facts import facts_of


def test_the_last_requests_are_kept_and_all_are_counted() -> None:
    activity = Activity(most=2)
    for name in "abc":
        activity.add(1000.0, facts_of(request_record(id=name)), [], "")
    assert [(each.number, each.record.id) for each in activity.newest_first()] == [(3, "c"), (2, "b")]
    assert activity.count == 3


def test_what_other_processes_tell_late_is_in_its_place_and_after_all_that_was_known() -> None:
    activity, other = Activity(), Activity()
    for at, name in ((1.0, "a"), (2.0, "b")):
        other.add(at, facts_of(request_record(id=name)), [], "")
    first, second = other.since(0)
    activity.tell(2, [second])
    activity.tell(0, [first])
    assert [(each.number, each.record.id) for each in activity.newest_first()] == [(1, "b"), (2, "a")]
    assert activity.count == 2


def test_a_small_head_is_kept_as_it_is() -> None:
    activity, headers = Activity(), [(b"user-agent", b"a" * 1000)]
    activity.add(0.0, facts_of(request_record()), headers, "::1")
    [kept] = activity.since(0)
    assert kept.headers is headers


@pytest.mark.parametrize(
    "headers",
    [
        [(b"x-%d" % number, b"b" * 10_000) for number in range(100)],
        [(b"x" * 10_000, b"")],
        [(b"a", b"b")] * 1000,
    ],
    ids=["values", "names", "lines"],
)
def test_a_large_head_is_cut(headers: list[tuple[bytes, bytes]]) -> None:
    activity = Activity()
    activity.add(0.0, facts_of(request_record()), headers, "::1")
    [cut] = activity.since(0)
    assert len(cut.headers) <= 32
    assert all(len(name) <= 256 and len(value) <= 256 for name, value in cut.headers)
