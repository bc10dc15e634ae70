from __future__ import annotations

from enginehouse.engines.failures import BackOff


def test_what_never_failed_may_be_tried_at_once() -> None:
    assert BackOff().left(0) == 0


def test_each_failure_in_a_row_doubles_the_pause_up_to_a_minute() -> None:
    back_off, now, pauses = BackOff(), 100.0, []
    for _ in range(2000):  # a day of a start that always fails
        back_off.failed(now)
        pauses.append(back_off.left(now))
        now += pauses[-1]
        assert back_off.left(now) == 0
    assert pauses[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert set(pauses[7:]) == {60}


def test_an_engine_that_was_ready_for_a_while_begins_anew() -> None:
    back_off = BackOff()
    for now in (0.0, 1.0, 3.0):
        back_off.failed(now)
    back_off.ready_at = 10
    back_off.failed(69)
    assert back_off.left(69) == 8, "it was ready for less than a minute"
    back_off.ready_at = 100
    back_off.failed(160)
    assert back_off.left(160) == 0, "the first failure of an engine that worked costs no pause"
    back_off.failed(500)
    assert back_off.left(500) == 2, "it was not ready since"


def test_only_the_first_failure_of_an_engine_that_was_ready_is_spared() -> None:
    back_off, pauses = BackOff(), []
    for now in (10.0, 20.0, 30.0):
        back_off.ready_at = now
        back_off.failed(now + 5)
        pauses.append(back_off.left(now + 5))
    assert pauses == [0, 2, 4]
