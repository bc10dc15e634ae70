from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, repeat

import pytest

from enginehouse import Candidate, Requirements, Scorer
from enginehouse_kit import expect as timing
from enginehouse_kit.testing import SlowPluginWarning, check_scorer, check_type


@pytest.fixture
def calls_take(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let measured calls take these seconds, and later ones no time."""

    def take(*seconds: float) -> None:
        ticks = accumulate(chain(*((0.0, each) for each in seconds), repeat(0.0)))
        monkeypatch.setattr(timing, "perf_counter", lambda: next(ticks))

    return take


class Counts(Scorer):
    def __init__(self) -> None:
        self.calls = 0

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        self.calls += 1
        return [50] * len(candidates)


def test_a_slow_plugin_is_warned_of_and_tried_a_few_times_only(calls_take: Callable[..., None]) -> None:
    calls_take(2.0, 1.5, 1.75)
    scorer = Counts()

    with pytest.warns(SlowPluginWarning, match="score took 1500 ms; more than 50 ms delay every request"):
        check_scorer(lambda: scorer)

    assert scorer.calls < 25


@pytest.mark.parametrize("seconds", [(0.04,), (2.0, 0.04), (2.0, 2.0, 0.04)])
def test_a_busy_machine_is_no_slow_plugin(calls_take: Callable[..., None], seconds: tuple[float, ...]) -> None:
    calls_take(*seconds)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_scorer(Counts)


TYPES = {
    "extractor": "tokens",
    "filter": "health",
    "scorer": "load",
    "strategy": "smart",
    "scheduler": "fifo",
    "swapper": "group",
    "driver": "openai",
}


@pytest.mark.parametrize(("kind", "type"), TYPES.items())
def test_slowness_is_seen_in_every_kind_that_runs_on_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, kind: str, type: str
) -> None:
    seconds = iter(range(0, 10**9, 1000))
    monkeypatch.setattr(timing, "perf_counter", lambda: next(seconds))

    with pytest.warns(SlowPluginWarning):
        check_type(kind, type)
