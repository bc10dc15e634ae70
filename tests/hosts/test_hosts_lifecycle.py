"""Loading, unloading, idling and failing, as operators see it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse.engines.processes import identity

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
BROKEN = '[models.broken]\ndriver = "sim"\ncommand = "sh -c \'echo out of memory; exit 3\' ${port}"\n'


def test_a_model_is_loaded_and_unloaded_on_request(house: Any, sim: Any) -> None:
    home = house(sim("a") + sim("b", host='"other"') + "[hosts.other]\n")
    assert home.running() == {}
    assert home.operate("/api/models/a/load").json() == {"model": "a", "state": "ready"}
    assert home.operate("/api/models/b/load").json() == {"model": "b", "state": "ready"}
    assert home.running() == {"a": "ready", "b": "ready"}
    assert home.operate("/api/models/a/unload").json() == {"model": "a", "state": "stopped"}
    assert home.running() == {"b": "ready"}
    assert home.http.get("/unload").text == "OK"
    assert home.running() == {}
    assert home.ask("a").status_code == 200, "an unloaded model is loaded again when it is asked for"


@pytest.mark.parametrize("what", ["load", "unload"])
def test_a_model_that_is_not_launched_is_not_found(house: Any, sim: Any, what: str) -> None:
    answer = house(sim("a")).operate(f"/api/models/b/{what}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_an_unload_refuses_nobody_else(house: Any, sim: Any) -> None:
    home = house(sim("a") + sim("b", "1s", host='"other"') + "[hosts.other]\n")
    assert home.ask("a").status_code == 200
    waiting = home.asking("b")
    home.until_waiting(b="loading")
    assert home.operate("/api/models/a/unload").status_code == 200
    assert waiting.result().status_code == 200


def test_an_unload_refuses_who_waits_for_the_model(house: Any, sim: Any) -> None:
    home = house(sim("a", "1m"))
    waiting = home.asking("a")
    home.until_waiting(a="loading")
    assert home.operate("/api/models/a/unload").status_code == 200
    assert waiting.result().json()["error"]["code"] == "load_failed"
    assert home.running() == {}


def test_a_load_that_fails_harms_nobody_else(house: Any, sim: Any) -> None:
    home = house(BROKEN + sim("a", host='"other"') + "[hosts.other]\n")
    assert home.ask("a").status_code == 200
    answer = home.ask("broken")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")
    assert answer.json()["error"]["details"]["log"] == ["out of memory"]
    again = home.ask("broken")
    assert (again.json()["error"]["code"], again.headers["retry-after"]) == ("load_failed", "1")
    assert home.operate("/api/models/broken/load").json()["error"]["code"] == "load_failed"
    assert home.running() == {"a": "ready"}
    assert home.ask("a").status_code == 200


def test_the_status_of_an_engine_that_is_not_ready_is_its_state(house: Any, sim: Any) -> None:
    home = house(BROKEN + sim("a") + sim("b"))
    assert [home.ask(model).status_code for model in ("broken", "a")] == [503, 200]
    shown = {each["name"]: (each["state"], each["health"]) for each in home.gateway.status()["backends"]}
    assert shown == {"broken": ("failed", "healthy"), "a": ("ready", "healthy"), "b": ("stopped", "healthy")}
    printed = CliRunner(env={"ENGINEHOUSE_URL": home.gateway.url}).invoke(enginehouse, "status").stdout
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in printed.splitlines()]
    assert [row[2] for row in rows if len(row) == 3] == ["failed", "healthy", "stopped"]
    assert "broken is failed: Model 'broken' did not start" in printed


def test_nothing_is_stopped_for_an_engine_that_is_left_alone(house: Any, sim: Any) -> None:
    home = house(BROKEN + sim("a"))
    assert home.ask("broken").status_code == 503
    assert home.ask("a").status_code == 200
    assert "is left alone" in home.ask("broken").json()["error"]["message"]
    assert home.history()[2:] == ["a starting", "a ready"]


def test_a_load_that_fails_leads_to_the_fallback(house: Any, sim: Any) -> None:
    home = house(BROKEN + sim("a") + '[routing.fallbacks]\nbroken = ["a"]\n')
    answer = home.ask("broken")
    assert (answer.status_code, answer.headers["x-enginehouse-model"]) == (200, "a")


def test_an_idle_model_is_unloaded(house: Any, sim: Any) -> None:
    home = house(sim("a", ttl='"1s"'))
    assert home.ask("a").status_code == 200
    assert home.running() == {"a": "ready"}
    home.until_running()
    assert home.ask("a").status_code == 200


def test_a_model_can_be_preloaded(house: Any, sim: Any) -> None:
    house(sim("a") + sim("b", preload="true")).until_running(b="ready")


@linux
def test_a_load_that_nobody_waits_for_any_more_is_given_up(house: Any, sim: Any) -> None:
    home = house(sim("a", "1m"))
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{home.gateway.url}/v1/chat/completions",
            json={"model": "a", "messages": []},
            trust_env=False,
            timeout=httpx.Timeout(30, read=1),
        )
    home.until_running()
    assert home.requests() == []
    assert home.gateway.status()["backends"][0]["pending"] == 0


@linux
def test_the_engines_of_a_killed_gateway_are_taken_over(house: Any, sim: Any, tmp_path: Path) -> None:
    first = house(sim("a"), ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert first.ask("a").status_code == 200
    engine = first.engines()["a"]
    first.gateway.kill()
    second = house(sim("a"), ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert second.running() == {"a": "ready"}
    assert second.ask("a").status_code == 200
    assert "a still runs and is taken over" in second.gateway.log
    second.operate("/unload")
    assert identity(engine) is None
