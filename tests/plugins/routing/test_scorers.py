from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Candidate, Scorer
from enginehouse_kit.testing import candidate, requirements
from enginehouse_routing.scorers import LatencyScorer, LoadScorer, PriorityScorer

SCORERS = (PriorityScorer, LoadScorer, LatencyScorer)


def score(scorer: Scorer, **fields: Any) -> float:
    return scorer.score(requirements(), [candidate(**fields)])[0]


@pytest.mark.parametrize(("priority", "figure"), [(0, 100), (1, 99), (50, 50), (99, 1), (100, 0), (101, 0), (9999, 0)])
def test_priority_is_clamped_to_100(priority: int, figure: int) -> None:
    assert score(PriorityScorer(), priority=priority) == figure


@pytest.mark.parametrize(("pending", "figure"), [(0, 100), (1, 99), (99, 1), (100, 0), (101, 0), (100_000, 0)])
def test_pending_requests_are_clamped_to_100(pending: int, figure: int) -> None:
    assert score(LoadScorer(), pending=pending) == figure


@pytest.mark.parametrize(
    ("ms", "figure"),
    [(0.0, 100), (9.99, 100), (10.0, 99), (50.0, 95), (200.0, 80), (999.9, 1), (1000.0, 0), (1e9, 0)],
)
def test_latency_counts_in_whole_tens_of_milliseconds(ms: float, figure: int) -> None:
    assert score(LatencyScorer(), avg_latency_ms=ms) == figure


def test_no_latency_yet_is_the_best() -> None:
    assert score(LatencyScorer()) == 100


def test_waking_a_cold_replica_is_latency() -> None:
    assert score(LatencyScorer(), avg_latency_ms=100.0, wake_s=0.25) == 65
    assert score(LatencyScorer(), wake_s=30.0) == 0


candidates = st.builds(
    lambda priority, pending, ms, wake_s: candidate(
        priority=priority, pending=pending, avg_latency_ms=ms, wake_s=wake_s
    ),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.floats(0, 1e9),
    st.floats(0, 1e6),
)


@given(st.lists(candidates, max_size=6))
def test_every_figure_is_an_integer_from_0_to_100(batch: list[Candidate]) -> None:
    for scorer in SCORERS:
        figures = scorer().score(requirements(), batch)
        assert len(figures) == len(batch)
        assert all(isinstance(figure, int) and 0 <= figure <= 100 for figure in figures)
