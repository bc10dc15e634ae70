from __future__ import annotations

import logging

import pytest

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.domain.errors import LoadCancelled
from enginehouse.errors import LoadFailed
from enginehouse.telemetry.counters import Counters
from enginehouse.telemetry.swap_reports import SwapReports
from enginehouse.tickets import SwapDone, SwapId


def test_each_swap_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    counters = Counters()
    reports = SwapReports(counters, SYSTEM_CLOCK.now)
    for number, error in enumerate((None, LoadFailed("it exited"), LoadCancelled("unloaded"))):
        reports.swap_started("b@b", ("a@a",))
        reports.swap_done(SwapDone(swap=SwapId(number), target="b@b", error=error))
    first, second, third = caplog.messages
    assert first.startswith("Swap of b@b: ready after 0.0")
    assert first.endswith(" s, evicted a@a")
    assert second.startswith("Swap of b@b: failed")
    assert {key: sum(each.counts) for key, each in counters.swaps.items()} == {
        ("b@b", "ready"): 1,
        ("b@b", "failed"): 1,
        ("b@b", "cancelled"): 1,
    }
    assert third.startswith("Swap of b@b: cancelled")
