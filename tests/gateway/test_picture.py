"""The picture of the code, which lint prints: arrows up and circles are faults."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tools.picture import API, arrows_of, faults, lines, read_floors, room_of

FLOORS = read_floors(
    [
        "enginehouse.errors | enginehouse.drivers",
        "enginehouse.app",
        "enginehouse.http",
        "enginehouse.config : enginehouse.domain",
    ]
)
DOWN = {API: {"app": 1}, "app": {"config": 2}, "config": {"domain": 1}, "domain": {}, "enginehouse_x": {API: 1}}


def test_each_module_has_a_room() -> None:
    rooms = {
        "enginehouse": API,
        "enginehouse.errors": API,
        "enginehouse.config.schema": "config",
        "enginehouse_kit.checks.drivers": "enginehouse_kit",
    }
    assert {module: room_of(module) for module in rooms} == rooms


def test_arrows_lead_between_rooms() -> None:
    imports = [("enginehouse.app.gateway", ["enginehouse.app.build", "enginehouse.config.schema"])]
    assert arrows_of([*imports, ("enginehouse.app.build", ["enginehouse.config.decode"])]) == {"app": {"config": 2}}


def test_a_picture_whose_arrows_lead_down_has_no_fault() -> None:
    assert list(faults(FLOORS, DOWN)) == []
    assert [line.split()[0] for line in lines(FLOORS, DOWN)] == ["plugins", "3", "2", "0", "0", "5"]


@pytest.mark.parametrize(
    ("arrows", "fault"),
    [
        ({"config": {"app": 1}}, "arrow up: 'config' imports 'app' 1 times"),
        ({"app": {API: 1}}, "arrow up: 'app' imports 'public API' 1 times"),
        ({"app": {"enginehouse_kit": 3}}, "arrow up: 'app' imports the plugin 'enginehouse_kit' 3 times"),
        ({"garage": {}}, "'garage' has no floor in the import contract"),
        ({"config": {"domain": 1}, "domain": {"config": 1}}, "circle: config -> domain -> config"),
        ({"enginehouse_x": {"enginehouse_y": 1}, "enginehouse_y": {"enginehouse_x": 1}}, "circle: "),
    ],
)
def test_an_arrow_up_and_a_circle_are_faults(arrows: Mapping[str, Mapping[str, int]], fault: str) -> None:
    assert [found for found in faults(FLOORS, arrows) if fault in found]


def test_rooms_that_the_contract_keeps_apart_do_not_import_each_other() -> None:
    apart = read_floors(["enginehouse.fleet | enginehouse.routing"])
    assert list(faults(apart, {"fleet": {"routing": 1}})) == ["arrow to a neighbour: 'fleet' imports 'routing' 1 times"]
