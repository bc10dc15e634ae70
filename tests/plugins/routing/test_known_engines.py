"""What is learned from answers, of which some come whole."""

from __future__ import annotations

from math import isfinite
from random import Random

import pytest

from enginehouse_routing.known_engines import EngineState

READ, WRITE = 5e-5, 7e-3


class Engine:
    """An engine whose answers take ``READ`` and ``WRITE`` seconds for each token, times ``slow``, with noise."""

    def __init__(self, seed: int = 1, noise: float = 0.1) -> None:
        self.learned = EngineState("a", None, [])
        self.slow = 1.0
        self._chance = Random(seed)
        self._noise = noise

    def stream(self) -> None:
        read, written = self._tokens()
        self.learned.learn(self._took(read * READ), read, 0)
        self.learned.learn(self._took(written * WRITE), 0, written)

    def answer(self) -> None:
        read, written = self._tokens()
        self.learned.learn(self._took(read * READ + written * WRITE), read, written)

    def _tokens(self) -> tuple[int, int]:
        return self._chance.randrange(300, 6000), self._chance.randrange(10, 300)

    def _took(self, seconds: float) -> float:
        return self.slow * seconds * self._chance.lognormvariate(0, self._noise)


@pytest.mark.parametrize("seed", range(10))
def test_answers_that_come_whole_teach_both_rates(seed: int) -> None:
    engine = Engine(seed)
    for _ in range(150):
        engine.answer()
    assert engine.learned.per_token == pytest.approx(READ, rel=0.35)
    assert engine.learned.per_written == pytest.approx(WRITE, rel=0.1)


@pytest.mark.parametrize("seed", range(10))
def test_they_leave_what_streams_have_taught(seed: int) -> None:
    engine = Engine(seed)
    for _ in range(10):
        engine.stream()
    for _ in range(500):
        engine.answer()
    assert engine.learned.per_token == pytest.approx(READ, rel=0.25)
    assert engine.learned.per_written == pytest.approx(WRITE, rel=0.1)


@pytest.mark.parametrize("whole", [False, True])
def test_one_answer_that_is_late_changes_little(whole: bool) -> None:
    engine = Engine(noise=0.02)
    for _ in range(30):
        engine.stream()
    before = engine.learned.per_token
    if whole:
        engine.learned.learn(60.0, 1000, 10)
    else:
        engine.learned.learn(60.0, 1000, 0)
    assert before < engine.learned.per_token < 1.25 * before


@pytest.mark.parametrize("whole", [False, True])
def test_an_engine_that_becomes_slow_is_known_soon(whole: bool) -> None:
    engine = Engine()
    for _ in range(100):
        engine.stream()
    engine.slow = 3.0
    for _ in range(25):
        engine.answer() if whole else engine.stream()
    assert engine.learned.per_token == pytest.approx(3 * READ, rel=0.4)


@pytest.mark.parametrize(("seconds", "read", "written"), [(0.0, 0, 0), (0.0, 256, 0), (0.0, 256, 50), (1e9, 256, 1)])
def test_whatever_an_answer_says_the_rates_are_numbers(seconds: float, read: int, written: int) -> None:
    learned = EngineState("a", None, [])
    for _ in range(1000):
        learned.learn(seconds, read, written)
        learned.learn(seconds, 0, written)
    assert all(isfinite(each) for each in (learned.per_token, learned.per_written, learned.lowest, learned.highest))


def test_it_is_less_sure_of_what_it_has_not_seen_for_long() -> None:
    engine = Engine()
    for _ in range(100):
        engine.stream()
    sure = engine.learned.highest / engine.learned.lowest
    engine.learned.fade(0.5)
    engine.answer()
    assert engine.learned.highest / engine.learned.lowest > sure
