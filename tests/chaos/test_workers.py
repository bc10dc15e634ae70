from __future__ import annotations

import pytest

from tests.chaos.processes import chaos, check_seeds


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("first", "count", "workers"),
    [
        pytest.param(0, 125, 2, marks=pytest.mark.long),
        pytest.param(1000, 2000, 2, marks=pytest.mark.slow),
        pytest.param(3000, 1000, 4, marks=pytest.mark.slow),
    ],
)
def test_nothing_dies_with_a_worker_but_its_own_requests(first: int, count: int, workers: int) -> None:
    check_seeds(first, count, workers)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_seed_with_workers_replays_byte_for_byte() -> None:
    once, again = (chaos("--first=50", "--seeds=20", "--workers=2", "--digests").splitlines()[:-1] for _ in range(2))
    assert len(once) == 20
    assert once == again
