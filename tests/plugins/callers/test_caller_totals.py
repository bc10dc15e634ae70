"""Sums by caller for metrics, however many callers there are."""

from __future__ import annotations

from enginehouse_callers.caller_metrics import MOST_SERIES, Totals


def test_callers_beyond_the_most_count_together() -> None:
    totals = Totals()
    for number in range(MOST_SERIES):
        totals.add(f"key-{number}", "m", 1.0)
    for caller in ("key-0", "late", "later"):
        totals.add(caller, "m", 1.0)
    sums = dict(totals)
    assert (sums["key-0", "m"], sums["other", "m"], len(sums)) == (2.0, 2.0, MOST_SERIES + 1)
    assert sorted(totals.take()) == sorted((*labels, amount) for labels, amount in sums.items())
    assert not dict(totals)
