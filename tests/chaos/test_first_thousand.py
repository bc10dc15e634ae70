from __future__ import annotations

import pytest

from tests.chaos.processes import check_seeds


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", [0, 500])
def test_nothing_is_lost_whatever_goes_wrong(first: int) -> None:
    check_seeds(first, 500)
