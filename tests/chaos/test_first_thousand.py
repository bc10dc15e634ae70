from __future__ import annotations

import pytest

from tests.chaos.processes import check_seeds


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 20), pytest.param(20, 480, marks=pytest.mark.long), pytest.param(500, 500, marks=pytest.mark.long)],
)
def test_nothing_is_lost_whatever_goes_wrong(first: int, count: int) -> None:
    check_seeds(first, count)
