"""Backends that a list names come, drain and go, without a reload."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import Status
from tests.support.operated_gateway import OperatedGateway, Serve
from tests.support.parallel import all_of

CHECKS = '[checks]\ninterval = "100ms"\n'


def config(file: Path) -> str:
    return f'{CHECKS}[discovery.lab]\ntype = "static"\nfile = "{file}"\ninterval = "20ms"\n'


def lists(file: Path, **backends: dict[str, Any]) -> None:
    """Replace the list in one step."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"backends": backends}))
    new.rename(file)


def source(gateway: OperatedGateway) -> dict[str, Any]:
    [found] = gateway.process.status()["discovery"]
    return dict(found)


def names(status: Status) -> set[str]:
    return {each["name"] for each in status["backends"]}


def test_backends_come_and_go_with_the_list(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "backends.json"
    a, b = SimEngine("m"), SimEngine("m")
    with all_of(a, b):
        lists(file, a={"url": a.url, "driver": "sim", "labels": {"rack": "7"}})
        gateway = serve(config(file))
        gateway.until_health(**{"lab-a": "healthy"})
        assert gateway.went_to("m") == "lab-a"
        found = source(gateway)
        assert (found["name"], found["type"], found["backends"], found["error"]) == ("lab", "static", 1, None)
        assert found["age_s"] < 60
        assert found["found"] == [{"name": "lab-a", "draining": False, "labels": {"rack": "7"}}]

        lists(file, b={"url": b.url, "driver": "sim"})
        gateway.until(lambda status: names(status) == {"lab-b"})
        gateway.until_health(**{"lab-b": "healthy"})
        assert gateway.went_to("m") == "lab-b"


def test_a_list_that_cannot_be_read_stays_in_force(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "backends.json"
    with SimEngine("m") as a:
        lists(file, a={"url": a.url, "driver": "sim"})
        gateway = serve(config(file))
        gateway.until_health(**{"lab-a": "healthy"})
        file.write_text('{"backends": {"a": {"url": 7}}}')
        gateway.until(lambda status: status["discovery"][0]["error"] is not None)
        assert str(file) in source(gateway)["error"]
        assert gateway.went_to("m") == "lab-a"


def test_what_is_called_draining_gets_nothing_more(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "backends.json"
    a, b = SimEngine("m"), SimEngine("m")
    with all_of(a, b):
        both: dict[str, dict[str, Any]] = {
            "a": {"url": a.url, "driver": "sim"},
            "b": {"url": b.url, "driver": "sim", "priority": 1},
        }
        lists(file, **both)
        gateway = serve('[routing]\nstrategy = "priority_only"\n' + config(file))
        gateway.until_health(**{"lab-a": "healthy", "lab-b": "healthy"})
        assert gateway.went_to("m") == "lab-a"
        both["a"]["draining"] = True
        lists(file, **both)
        gateway.until(lambda status: any(each["draining"] for each in status["backends"]))
        assert gateway.went_to("m") == "lab-b"
        both["a"]["draining"] = False
        lists(file, **both)
        gateway.until(lambda status: not any(each["draining"] for each in status["backends"]))
        assert gateway.went_to("m") == "lab-a"


def test_a_reload_ends_and_begins_discoveries(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "backends.json"
    with SimEngine("m") as a:
        lists(file, a={"url": a.url, "driver": "sim"})
        gateway = serve(CHECKS)
        assert gateway.process.status()["discovery"] == []
        gateway = serve(config(file))
        gateway.until_health(**{"lab-a": "healthy"})
        gateway = serve(CHECKS)
        gateway.until(lambda status: not names(status))
        assert gateway.process.status()["discovery"] == []
