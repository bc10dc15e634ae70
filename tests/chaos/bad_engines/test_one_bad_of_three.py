"""Sixteen faults at one of three engines, and at all three: what clients get."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.bad_engines.answers import outcomes
from tests.chaos.bad_engines.faulty_engine import FAULTS, Fault, FaultyEngine
from tests.chaos.bad_engines.virtual_gateway import virtual_gateway
from tests.support.virtual_time import Run

SECTIONS: dict[str, object] = {
    "timeouts": {"first_byte": 1, "stall": 1, "total": 10},
    "routing": {"strategy": "round_robin", "retry_budget": 1},  # one of three that says 429 for ever needs more
    "telemetry": {"access_log": False},
}
NEVER_FOUND_OUT = {**SECTIONS, "checks": {"failures": 1_000_000}}
BOTH = pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "plain"])
EACH = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
COUNTS = pytest.mark.parametrize("count", [20, pytest.param(640, marks=pytest.mark.slow)])


@COUNTS
@EACH
@BOTH
def test_one_bad_engine_of_three_is_not_noticed(in_virtual_time: Run, fault: Fault, streamed: bool, count: int) -> None:
    async def scenario() -> None:
        engines = FaultyEngine(), FaultyEngine(fault), FaultyEngine()
        async with virtual_gateway(engines, **SECTIONS) as gateway:
            found = await outcomes(gateway, count, streamed=streamed)
            # Only `timeouts.total` ends an endless answer: it is lost, until the engine is found out.
            lost = max(3, count // 80) if fault is FAULTS["never ends"] else 0
            assert found["error"] <= lost
            assert found["right"] == count - found["error"]

    in_virtual_time(scenario())


@pytest.mark.long
@EACH
@BOTH
def test_nothing_depends_on_that_it_is_found_out(in_virtual_time: Run, fault: Fault, streamed: bool) -> None:
    async def scenario() -> None:
        engines = FaultyEngine(), FaultyEngine(fault), FaultyEngine()
        async with virtual_gateway(engines, **NEVER_FOUND_OUT) as gateway:
            found = await outcomes(gateway, 12, streamed=streamed)
            lost = 4 if fault is FAULTS["never ends"] else 0
            assert found == Counter(right=12 - lost, error=lost)

    in_virtual_time(scenario())


@COUNTS
@EACH
@BOTH
def test_of_three_bad_engines_come_clean_errors(in_virtual_time: Run, fault: Fault, streamed: bool, count: int) -> None:
    async def scenario() -> None:
        engines = FaultyEngine(fault), FaultyEngine(fault), FaultyEngine(fault)
        async with virtual_gateway(engines, **SECTIONS) as gateway:
            assert await outcomes(gateway, count, streamed=streamed) == Counter(error=count)

    in_virtual_time(scenario())
