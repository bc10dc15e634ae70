from __future__ import annotations

import pytest

from enginehouse.fleet.health import ErrorWindow


def test_a_few_answers_say_nothing() -> None:
    window = ErrorWindow()
    assert [window.failed(100.0) for _ in range(10)] == [0.0] * 9 + [1.0]


def test_the_share_is_that_of_the_last_two_minutes() -> None:
    window = ErrorWindow()
    window.good = 30
    for second in range(10):
        window.failed(100.0 + second)
    assert window.share(110.0) == pytest.approx(0.25)
    window.good += 60
    assert window.share(215.0) == pytest.approx(0.1)
    assert window.share(235.0) == 0.0, "only good answers are left"
    assert window.share(10_000.0) == 0.0
