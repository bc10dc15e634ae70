from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Candidate, Requirements, Scorer
from enginehouse.domain.errors import NoHealthyBackend
from enginehouse.domain.plugin_id import PluginId
from enginehouse.errors import PluginFailed
from enginehouse.routing.guards import GuardedScorer
from enginehouse_kit.testing import candidate, check_scorer, requirements


class Returns(Scorer):
    def __init__(self, figures: Any) -> None:
        self.figures = figures

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        figures: Sequence[float] = self.figures
        return figures


class Raises(Scorer):
    def __init__(self, error: Exception) -> None:
        self.error = error

    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        raise self.error


def guarded(scorer: Scorer) -> GuardedScorer:
    return GuardedScorer(PluginId("scorer", "distance", "geo", "near"), scorer)


def score(scorer: Scorer, count: int) -> Sequence[float]:
    return guarded(scorer).score(requirements(), [candidate(f"b{n}") for n in range(count)])


def test_figures_are_clamped() -> None:
    assert score(Returns((-1000, 0, 12.5, 100, 1000, math.inf, -math.inf)), 7) == [0, 0, 12.5, 100, 100, 100, 0]


@given(st.lists(st.floats(allow_nan=False)))
def test_any_figures_become_figures_from_0_to_100(figures: list[float]) -> None:
    assert all(0 <= figure <= 100 for figure in score(Returns(figures), len(figures)))


@pytest.mark.parametrize(
    ("figures", "problem"),
    [
        ([1, 2], "returned 2 figures for 3 candidates"),
        ([1, 2, 3, 4], "returned 4 figures for 3 candidates"),
        ([1, math.nan, 3], "returned NaN"),
        ([math.inf, math.nan, -math.inf], "returned NaN"),
        (["1", "2", "3"], "failed with TypeError"),
        ([1, None, 3], "failed with TypeError"),
        (None, "failed with TypeError"),
        (iter([1, 2, 3]), "failed with TypeError"),
    ],
)
def test_a_wrong_result_names_the_scorer(figures: object, problem: str) -> None:
    with pytest.raises(PluginFailed) as caught:
        score(Returns(figures), 3)
    assert caught.value.message == f"The scorer 'near' (type 'distance' of plugin 'geo') {problem}"
    assert caught.value.details == {"kind": "scorer", "type": "distance", "plugin": "geo", "name": "near"}


def test_an_exception_names_the_scorer_and_keeps_the_cause() -> None:
    with pytest.raises(PluginFailed, match=r"scorer 'near' .* failed with ZeroDivisionError") as caught:
        score(Raises(ZeroDivisionError("secret")), 1)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert "secret" not in caught.value.message


def test_a_scorer_may_refuse_a_request() -> None:
    with pytest.raises(NoHealthyBackend):
        score(Raises(NoHealthyBackend("m")), 1)


def test_a_strategy_that_holds_it_can_be_copied() -> None:
    assert deepcopy(guarded(Returns([5]))).score(requirements(), [candidate()]) == [5]


def test_it_keeps_the_rules_of_scorers() -> None:
    class First(Scorer):
        def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
            return [100 / (1 + n) for n in range(len(candidates))]

    check_scorer(lambda: guarded(First()))
