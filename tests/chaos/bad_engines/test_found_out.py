"""An engine that goes bad in the middle of its answers is found out, and used again when it works."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.chaos.bad_engines.answers import outcomes
from tests.chaos.bad_engines.faulty_engine import FAULTS, FaultyEngine
from tests.chaos.bad_engines.virtual_gateway import virtual_gateway
from tests.support.virtual_time import Run

IN_THE_MIDDLE = [
    "hangs in the middle",
    "closes in the middle",
    "resets in the middle",
    "ends too early",
    "loses the framing",
    "sends garbage",
    "sends an error",
]
FAILURES = 3
SECTIONS: dict[str, object] = {
    "checks": {"failures": FAILURES, "interval": 1},
    "timeouts": {"first_byte": 1, "stall": 1},
    "routing": {"strategy": "priority_only"},
    "telemetry": {"access_log": False},
}
KINDS = pytest.mark.parametrize("kind", IN_THE_MIDDLE)


async def goes_bad_and_returns(kind: str, *, streamed: bool, at_once: bool, lost: int, **sections: object) -> None:
    """The engine asked first goes bad: of ten answers, at most ``lost`` are lost. Later it works, and is used."""
    first, other, third = FaultyEngine(), FaultyEngine(), FaultyEngine()
    async with virtual_gateway((first, other, third), **SECTIONS, **sections) as gateway:
        for name in "abc":
            await gateway.until_health(name, "healthy")
        first.fault = FAULTS[kind]
        found = await outcomes(gateway, 10, streamed=streamed, at_once=at_once)
        assert (found["right"] >= 10 - lost, found["wrong"], found["hung"]) == (True, 0, 0)
        assert gateway.health("a") == "unhealthy"
        first.fault = None
        await gateway.until_health("a", "healthy")
        before = first.asked
        assert await outcomes(gateway, 3, streamed=streamed) == Counter(right=3)
        assert first.asked == before + 3


@KINDS
@pytest.mark.parametrize("streamed", [True, False], ids=["streamed", "plain"])
@pytest.mark.parametrize("at_once", [False, True], ids=["sequential", "at once"])
def test_it_is_found_out_unseen_and_comes_back(in_virtual_time: Run, kind: str, streamed: bool, at_once: bool) -> None:
    in_virtual_time(goes_bad_and_returns(kind, streamed=streamed, at_once=at_once, lost=0))


@KINDS
def test_without_held_answers_few_are_lost(in_virtual_time: Run, kind: str) -> None:
    as_it_comes = {"hold_answers": 0}
    in_virtual_time(goes_bad_and_returns(kind, streamed=False, at_once=False, lost=FAILURES, server=as_it_comes))
