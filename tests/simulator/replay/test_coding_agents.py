"""The traffic of coding agents."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from enginehouse_sim.simulator.replay.traces.workload import Workload


@pytest.mark.parametrize("seed", [1, 2])
def test_the_trace_has_the_published_figures(seed: int) -> None:
    requests = list(Workload(rate=12.0, lengths="coding-agents", seed=seed).requests(3000))
    assert all(before.arrival <= after.arrival for before, after in pairwise(requests))
    assert median(each.input_length for each in requests) == pytest.approx(195_000, rel=0.1)
    assert median(each.output_length for each in requests) == pytest.approx(317, rel=0.1)
    known: set[int] = set()
    reusable = 0
    for each in requests:
        reusable += sum(block in known for block in each.prefix_ids) * each.prefix_tokens
        known.update(each.prefix_ids)
    assert 0.95 < reusable / sum(each.input_length for each in requests) < 0.99
    assert requests[:50] == list(Workload(rate=12.0, lengths="coding-agents", seed=seed).requests(50))
