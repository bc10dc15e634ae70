"""The same requests and faults, served and replayed: the gateway decides the same about each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.simulator.served_and_replayed.replayed import replayed
from tests.simulator.served_and_replayed.scenario import TPOT_S, Scenario
from tests.simulator.served_and_replayed.scenarios import SCENARIOS
from tests.simulator.served_and_replayed.served import ADMIN, Served
from tests.support.parallel import all_of

ALWAYS_RUN = 4
"""Scenarios that do not wait for ``make long``."""


def _engine(*models: str) -> SimEngine:
    return SimEngine(*models, tpot=f"{TPOT_S}s")


@pytest.fixture(scope="module")
def engines() -> Iterator[Mapping[str, SimEngine]]:
    engines = {name: _engine("m", f"only-{name}") for name in "abc"}
    with all_of(*engines.values()):
        yield engines


@pytest.mark.parametrize(
    "scenario",
    [
        *SCENARIOS[:ALWAYS_RUN],
        *(pytest.param(each, marks=pytest.mark.long) for each in SCENARIOS[ALWAYS_RUN:]),
    ],
    ids=lambda each: each.name,
)
async def test_what_is_replayed_is_what_is_served(
    scenario: Scenario, engines: Mapping[str, SimEngine], tmp_path: Path
) -> None:
    file = tmp_path / "enginehouse.toml"
    file.write_text(scenario.config.format(**{name: engine.url for name, engine in engines.items()}))
    expected, progress = await asyncio.to_thread(replayed, scenario, file)  # it has an event loop of its own
    with RunningGateway(file.read_text(), key=ADMIN) as gateway:
        gateway.until(lambda status: all(each["models"] for each in status["backends"]))
        seen = await Served(scenario, gateway, engines).run(progress)
    assert not _differences(seen.ways, expected.ways)
    assert not _differences(seen.ends, expected.ends)
    assert seen.counts == expected.counts


def _differences(seen: Mapping[int, object], expected: Mapping[int, object]) -> dict[int, tuple[object, object]]:
    """By the number of the request."""
    numbers = sorted({*seen, *expected})
    return {each: (seen.get(each), expected.get(each)) for each in numbers if seen.get(each) != expected.get(each)}
