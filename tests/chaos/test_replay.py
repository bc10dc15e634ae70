from __future__ import annotations

import pytest

from tests.chaos.processes import chaos


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_seed_replays_byte_for_byte() -> None:
    seeds = ("--first=56", "--seeds=5", "--digests")
    once, again = (chaos(*seeds).splitlines()[:-1] for _ in range(2))
    assert len(once) == 5
    assert once == again
    alone = chaos("--first=60", "--seeds=1", "--digests").splitlines()[0]
    assert alone in once
