"""Seeds that failed, or never ended, when they were run first."""

from __future__ import annotations

import pytest

from tests.chaos.processes import check_seeds


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(2701, id="the bench reads a flooded answer"),
        pytest.param(3890, id="a call to an engine's page finds its model unloaded"),
        pytest.param(29723, id="and is told so in pieces"),
        pytest.param(32536, id="an operator waits for an unload when the gateway stops"),
        pytest.param(49166, id="a reload gives a running engine another driver"),
        pytest.param(54115, id="a flood that arrives slowly outlasts the faults"),
        pytest.param(65922, id="a client of HTTP/1.0 reads too slowly"),
        pytest.param(76456, id="requests wait behind an answer that is not read when their client ends"),
    ],
)
def test_what_was_found_stays_mended(seed: int) -> None:
    check_seeds(seed, 1)
