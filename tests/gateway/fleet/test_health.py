from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Health
from enginehouse.config.schema import CheckSettings
from enginehouse.fleet.health import HealthTracker

CHECKS = CheckSettings(failures=3, successes=2)


def report(tracker: HealthTracker, *well: bool) -> list[bool]:
    return [tracker.succeeded() if each else tracker.failed("refused", 1.0) for each in well]


def health(tracker: HealthTracker) -> Health:
    return tracker.health


@pytest.mark.parametrize(("well", "then"), [(True, Health.HEALTHY), (False, Health.UNHEALTHY)])
def test_the_first_report_decides_at_once(well: bool, then: Health) -> None:
    tracker = HealthTracker(CHECKS)
    assert health(tracker) is Health.UNKNOWN
    assert report(tracker, well) == [True]
    assert health(tracker) is then


def test_three_failures_in_a_row_make_a_backend_unhealthy() -> None:
    tracker = HealthTracker(CHECKS, Health.HEALTHY)
    assert report(tracker, False, False) == [False, False]
    assert health(tracker) is Health.HEALTHY
    assert report(tracker, False) == [True]
    assert health(tracker) is Health.UNHEALTHY


def test_a_success_between_failures_starts_the_count_anew() -> None:
    tracker = HealthTracker(CHECKS, Health.HEALTHY)
    report(tracker, False, False, True, False, False)
    assert health(tracker) is Health.HEALTHY


@pytest.mark.parametrize("before", list(Health))
def test_a_backend_can_be_marked_unhealthy_at_once(before: Health) -> None:
    tracker = HealthTracker(CHECKS, before)
    assert tracker.mark_unhealthy("killed", 5.0) is (before is not Health.UNHEALTHY)
    assert (health(tracker), tracker.last_error, tracker.last_error_at) == (Health.UNHEALTHY, "killed", 5.0)
    assert not tracker.steady
    assert report(tracker, True, True) == [False, True]


def test_two_successes_in_a_row_make_it_healthy_again() -> None:
    tracker = HealthTracker(CHECKS, Health.UNHEALTHY)
    assert report(tracker, True, False, True) == [False, False, False]
    assert health(tracker) is Health.UNHEALTHY
    assert report(tracker, True) == [True]
    assert health(tracker) is Health.HEALTHY


def test_a_backend_that_came_back_has_all_its_failures_before_it_again() -> None:
    tracker = HealthTracker(CHECKS, Health.UNHEALTHY)
    report(tracker, True, True, False, False)
    assert health(tracker) is Health.HEALTHY


def test_the_last_error_and_its_time_are_kept_after_recovery() -> None:
    tracker = HealthTracker(CHECKS)
    tracker.failed("refused", 7.0)
    tracker.failed("timed out", 8.5)
    report(tracker, True, True)
    assert (tracker.last_error, tracker.last_error_at) == ("timed out", 8.5)


@given(
    st.lists(st.booleans(), max_size=40),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([Health.UNKNOWN, Health.HEALTHY, Health.UNHEALTHY]),
)
def test_health_follows_runs_of_reports(reports: list[bool], failures: int, successes: int, start: Health) -> None:
    tracker = HealthTracker(CheckSettings(failures=failures, successes=successes), start)
    expected, seen = start, list[bool]()
    for well in reports:
        before = tracker.health
        seen.append(well)
        changed = report(tracker, well)[0]
        down = seen[-failures:] == [False] * failures
        up = seen[-successes:] == [True] * successes
        if expected is Health.UNKNOWN:
            expected = Health.HEALTHY if well else Health.UNHEALTHY
        elif expected is Health.HEALTHY and down:
            expected = Health.UNHEALTHY
        elif expected is Health.UNHEALTHY and up:
            expected = Health.HEALTHY
        assert health(tracker) is expected
        assert changed == (tracker.health is not before)
        if changed:
            seen.clear()
        assert tracker.steady == (tracker.health is Health.HEALTHY and (not seen or seen[-1]))


def test_an_engine_that_fails_requests_but_passes_probes_is_trusted_less_each_time() -> None:
    checks = CheckSettings(interval=5, failures=3, successes=2)
    tracker = HealthTracker(checks, Health.HEALTHY)
    changes, now = [], 0.0
    while now < 200.0:
        now += checks.interval
        if tracker.health is Health.HEALTHY:
            for _ in range(3):
                tracker.failed("answered 503", now)
        elif tracker.probe_succeeded(now):
            changes.append(now)
    assert changes == [15.0, 35.0, 75.0, 155.0], "it gets one request each time, after a pause that doubles"
    assert tracker.health is Health.UNHEALTHY


def test_answered_requests_end_the_trial() -> None:
    tracker = HealthTracker(CheckSettings(interval=5, failures=3, successes=2), Health.HEALTHY)
    for now in range(3):
        tracker.failed("answered 503", now)
    assert [tracker.probe_succeeded(now) for now in (5, 10)] == [False, True]
    tracker.probe_succeeded(15)
    assert not tracker.steady, "probes do not end a trial"
    tracker.succeeded()
    tracker.succeeded()
    assert tracker.steady
    tracker.failed("answered 503", 20)
    assert tracker.health is Health.HEALTHY, "one failure is no reason again"


def test_requests_that_may_be_at_fault_themselves_count_if_nothing_else_is_answered() -> None:
    tracker = HealthTracker(CHECKS, Health.HEALTHY)
    assert [tracker.doubted("answered 500", 1.0) for _ in range(2)] == [False, False]
    tracker.succeeded()
    assert [tracker.doubted("answered 500", 1.0) for _ in range(3)] == [False, False, True]
    assert (health(tracker), tracker.last_error) == (Health.UNHEALTHY, "answered 500")


def test_probes_excuse_no_failed_request() -> None:
    tracker = HealthTracker(CHECKS, Health.HEALTHY)
    for _ in range(2):
        tracker.failed("answered 503", 1.0)
        tracker.probe_succeeded(2.0)
    assert not tracker.steady
    assert tracker.failed("answered 503", 3.0)
    tracker = HealthTracker(CHECKS, Health.HEALTHY)
    for _ in range(2):
        tracker.doubted("answered 500", 1.0)
        tracker.probe_succeeded(2.0)
    assert tracker.doubted("answered 500", 3.0)


def test_a_backend_that_failed_requests_is_doubtful_until_it_is_healthy_again() -> None:
    tracker = HealthTracker(CheckSettings(interval=5, failures=1, successes=1), Health.HEALTHY)
    tracker.probe_failed("refused", 1.0)
    assert not tracker.is_doubtful(1.0)
    tracker.probe_succeeded(2.0)
    tracker.failed("answered 503", 3.0)
    assert tracker.is_doubtful(3.0)
    tracker.probe_succeeded(4.0)
    assert not tracker.is_doubtful(4.0)
    tracker.failed("answered 503", 5.0)
    assert (tracker.is_doubtful(14.9), tracker.is_doubtful(15.0)) == (False, True)
