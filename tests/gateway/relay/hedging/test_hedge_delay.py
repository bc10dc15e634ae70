"""When a second replica is asked."""

from __future__ import annotations

import pytest

from enginehouse.config.routing import parse_hedge_after
from enginehouse.relay.retries import HedgeDelay


def delay(text: str) -> HedgeDelay:
    after = parse_hedge_after(text)
    assert after is not None
    return HedgeDelay(after)


def test_a_duration_needs_no_times() -> None:
    assert delay("2s").of("m") == 2.0


def test_a_percentile_needs_twenty_times_of_the_model() -> None:
    it = delay("p95")
    for number in range(19):
        it.observe("m", float(number))
    assert it.of("m") is None
    it.observe("m", 19.0)
    assert it.of("m") == 18.0
    assert it.of("other") is None


def test_a_percentile_follows_the_last_times() -> None:
    it = delay("p50")
    for _ in range(200):
        it.observe("m", 1.0)
    assert it.of("m") == 1.0
    for _ in range(200):
        it.observe("m", 3.0)
    assert it.of("m") == 3.0


def test_only_so_many_models_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("enginehouse.relay.retries._MOST_MODELS", 2)
    it = delay("p50")
    for model in ("gone", "a", "b"):
        for _ in range(20):
            it.observe(model, 1.0)
    assert [it.of(model) for model in ("gone", "a", "b")] == [None, 1.0, 1.0]


@pytest.mark.parametrize("text", ["", "0", "p100", "p49", "p", "P95", "95", "-1s", "soon"])
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_hedge_after(text)
    assert parse_hedge_after("off") is None
