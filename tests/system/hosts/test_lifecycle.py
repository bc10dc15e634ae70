"""Loading, unloading, idling and failing, as operators see it."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from enginehouse.cli import enginehouse
from enginehouse_local.processes import identity
from tests.support.operated_gateway import ADMIN_KEY, Serve, ServeAlone, Stage, table

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
BROKEN = '[models.broken]\ndriver = "sim"\ncommand = "sh -c \'echo out of memory; exit 3\' ${port}"\n'


def test_a_model_is_loaded_and_unloaded_on_request(serve: Serve) -> None:
    gateway = serve(table("a") + table("b", host='"other"') + "[hosts.other]\n")
    assert gateway.running() == {}
    assert gateway.operate("/api/models/a/load").json() == {"model": "a", "state": "ready"}
    assert gateway.operate("/api/models/b/load").json() == {"model": "b", "state": "ready"}
    assert gateway.running() == {"a": "ready", "b": "ready"}
    assert gateway.operate("/api/models/a/unload").json() == {"model": "a", "state": "stopped"}
    assert gateway.running() == {"b": "ready"}
    assert gateway.http.get("/unload").text == "OK"
    assert gateway.running() == {}
    assert gateway.ask("a").status_code == 200, "an unloaded model is loaded again when it is asked for"


@pytest.mark.parametrize("what", ["load", "unload"])
def test_a_model_that_is_not_launched_is_not_found(serve: Serve, what: str) -> None:
    answer = serve(table("a")).operate(f"/api/models/b/{what}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    assert "there are 'a'" in answer.json()["error"]["message"]


@pytest.mark.parametrize("what", ["load", "unload"])
def test_a_model_of_somebody_elses_engine_is_none_of_ours(serve: Serve, what: str) -> None:
    gateway = serve(table("a") + '[backends.far]\nurl = "http://127.0.0.1:9"\nmodels = ["b"]\n')
    answer = gateway.operate(f"/api/models/b/{what}")
    assert answer.status_code == 400
    assert "neither launches nor loads" in answer.json()["error"]["message"]


def test_an_unload_refuses_no_request_for_another_model(serve: Serve, stage: Stage) -> None:
    gateway = serve(table("a") + stage.table("b", host='"other"') + "[hosts.other]\n")
    assert gateway.ask("a").status_code == 200
    waiting = gateway.asking("b")
    gateway.until_waiting(b="loading")
    assert gateway.operate("/api/models/a/unload").status_code == 200
    stage.open()
    assert waiting.result().status_code == 200


def test_an_unload_refuses_the_requests_waiting_for_the_model(serve: Serve) -> None:
    gateway = serve(table("a", "1m"))
    waiting = gateway.asking("a")
    gateway.until_waiting(a="loading")
    assert gateway.operate("/api/models/a/unload").status_code == 200
    assert waiting.result().json()["error"]["code"] == "load_failed"
    assert gateway.running() == {}


def test_an_unload_waits_for_live_requests_and_takes_no_new_ones(serve: Serve, stage: Stage) -> None:
    gateway = serve(stage.table("a"))
    stage.open()
    with stage.mute():
        live = gateway.asking("a")
        gateway.until_waiting(a="serving")
        unload = gateway.operating("/api/models/a/unload")
        gateway.until_running(a="stopping")
    assert unload.result().status_code == 200
    assert live.result().status_code == 200, "the engine stops after the last answer"
    assert gateway.running() == {}


def test_a_forced_unload_cuts_live_requests_and_names_the_reason(serve: Serve) -> None:
    gateway = serve(table("a", ttft="1m"))
    live = gateway.asking("a")
    gateway.until_waiting(a="serving")
    assert gateway.operate("/api/models/a/unload?force=true").status_code == 200
    answer = live.result()
    assert answer.status_code == 502
    assert "an operator unloaded its model" in answer.text
    assert gateway.running() == {}
    assert gateway.loads("a") == 1, "the request does not load it again"


def test_a_stream_that_a_forced_unload_cuts_ends_with_the_reason(serve: Serve) -> None:
    gateway = serve(table("a", tpot="200ms"))
    body = {"model": "a", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100, "stream": True}
    with gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: ")
        assert gateway.operate("/unload?force=true").status_code == 200
        rest = list(lines)
    assert any("an operator unloaded its model" in line for line in rest)
    assert "data: [DONE]" not in rest


def test_a_forced_unload_ends_one_that_waits(serve: Serve) -> None:
    gateway = serve(table("a", ttft="1m"))
    live = gateway.asking("a")
    gateway.until_waiting(a="serving")
    environment = {"ENGINEHOUSE_URL": gateway.process.url, "ENGINEHOUSE_KEY": ADMIN_KEY}
    patient = gateway.operating("/unload")
    gateway.until_running(a="stopping")
    result = CliRunner(env=environment).invoke(enginehouse, ["unload", "a", "--force"])
    assert result.output == "a is unloaded\n"
    assert patient.result().text == "OK"
    assert live.result().status_code == 502


def test_force_is_true_or_false(serve: Serve) -> None:
    answer = serve(table("a")).operate("/api/models/a/unload?force=yes")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


def test_a_failed_load_harms_no_other_model(serve: Serve) -> None:
    gateway = serve(BROKEN + table("a", host='"other"') + "[hosts.other]\n")
    assert gateway.ask("a").status_code == 200
    answer = gateway.ask("broken")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "load_failed")
    assert answer.json()["error"]["details"]["log"] == ["out of memory"]
    again = gateway.ask("broken")
    assert again.json()["error"]["details"]["log"] == ["out of memory"], (
        "it waits out the first pause and is tried again"
    )
    assert gateway.operate("/api/models/broken/load").json()["error"]["code"] == "load_failed"
    assert gateway.running() == {"a": "ready"}
    assert gateway.ask("a").status_code == 200


def test_the_status_of_an_engine_that_is_not_ready_is_its_state(serve: Serve) -> None:
    gateway = serve(BROKEN + table("a") + table("b"))
    assert [gateway.ask(model).status_code for model in ("broken", "a")] == [503, 200]
    shown = {each["name"]: (each["state"], each["health"]) for each in gateway.process.status()["backends"]}
    assert shown == {"broken": ("failed", "healthy"), "a": ("ready", "healthy"), "b": ("stopped", "healthy")}
    printed = CliRunner(env={"ENGINEHOUSE_URL": gateway.process.url}).invoke(enginehouse, "status").stdout
    rows = [[cell.strip() for cell in line.split("│")[1:4]] for line in printed.splitlines()]
    assert [row[2] for row in rows if row and row[0] in shown] == ["failed", "healthy", "stopped"]
    assert "broken is failed: Model 'broken' did not start" in printed


def test_no_engine_is_stopped_for_one_in_back_off(serve: Serve) -> None:
    gateway = serve(BROKEN + table("a"))
    pause = re.compile(r"is not tried again for (\d+) s")

    def refused_beside_a() -> bool:
        """Whether the load of ``a`` takes less than the pause of ``broken``, which gets longer each time."""
        while not pause.search((answer := gateway.ask("broken")).text):
            assert answer.status_code == 503
        assert gateway.ask("a").status_code == 200
        refused = gateway.ask("broken")
        found = pause.search(refused.text)
        return found is not None and refused.headers["retry-after"] == found[1]

    gateway.until(lambda _: refused_beside_a())
    assert gateway.history()[-2:] == ["a starting", "a ready"]


def test_a_load_that_fails_leads_to_the_fallback(serve: Serve) -> None:
    gateway = serve(BROKEN + table("a") + '[routing.fallbacks]\nbroken = ["a"]\n')
    answer = gateway.ask("broken")
    assert (answer.status_code, answer.headers["x-enginehouse-model"]) == (200, "a")


def test_an_idle_model_is_unloaded(serve: Serve) -> None:
    gateway = serve(table("a", ttl='"500ms"'))
    asked = time.monotonic()
    assert gateway.ask("a").status_code == 200
    gateway.until_running()
    assert time.monotonic() - asked >= 0.5
    assert gateway.ask("a").status_code == 200


def test_a_model_can_be_preloaded(serve: Serve) -> None:
    serve(table("a") + table("b", preload="true")).until_running(b="ready")


def test_a_model_is_preloaded_again_once_another_has_left_its_host_empty(serve: Serve) -> None:
    gateway = serve(table("a", preload='"again"') + table("b", ttl='"200ms"'))
    gateway.until_running(a="ready")
    assert gateway.ask("b").status_code == 200
    gateway.until_running(a="ready")


def test_a_load_on_request_leaves_no_slot_taken(serve: Serve) -> None:
    gateway = serve(table("a", concurrency="1"))
    assert gateway.operate("/api/models/a/load").status_code == 200
    assert gateway.ask("a").status_code == 200


@linux
def test_a_client_that_gives_up_and_asks_again_gets_its_model(serve: Serve, stage: Stage) -> None:
    gateway = serve(stage.table("a"))
    for _ in range(2):
        with gateway.impatient_client("a"):
            gateway.until_waiting(a="loading")
        gateway.until_asked(0)
    stage.open()
    assert gateway.ask("a").status_code == 200
    assert gateway.log.count("a is starting") == 1


@linux
def test_a_load_without_waiting_requests_is_cancelled_if_so_configured(serve: Serve) -> None:
    gateway = serve('[scheduling]\ncancel_loads = "always"\n' + table("a", "1m"))
    with gateway.impatient_client("a"):
        gateway.until_waiting(a="loading")
    gateway.until_running()
    assert gateway.requests() == []
    assert gateway.process.status()["backends"][0]["pending"] == 0


@linux
def test_the_engines_of_a_killed_gateway_are_taken_over(serve_alone: ServeAlone, tmp_path: Path) -> None:
    first = serve_alone(table("a"), ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert first.ask("a").status_code == 200
    engine = first.engines()["a"]
    first.process.kill()
    second = serve_alone(table("a"), ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert second.running() == {"a": "ready"}
    assert second.ask("a").status_code == 200
    assert "a still runs and is taken over" in second.log
    second.operate("/unload")
    assert identity(engine) is None


@linux
def test_an_engine_without_a_record_is_found_by_its_mark(serve_alone: ServeAlone, tmp_path: Path) -> None:
    first = serve_alone(table("a"), ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert first.ask("a").status_code == 200
    engine = first.engines()["a"]
    first.process.kill()
    [records] = tmp_path.rglob("engines.json")
    records.unlink()
    second = serve_alone(table("a"), ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert second.running() == {"a": "ready"}
    assert second.engines()["a"] == engine
    assert "without a record" in second.log


@linux
def test_a_scaled_model_comes_back_with_the_replicas_that_its_killed_gateway_has_left(
    serve_alone: ServeAlone, tmp_path: Path
) -> None:
    folder = {"ENGINEHOUSE_STATE_DIR": str(tmp_path)}
    first = serve_alone(table("a", replicas="2", preload="true"), **folder)
    first.until(lambda _: all(each["state"] == "ready" for each in first.process.status()["backends"]))
    first.process.kill()
    second = serve_alone(table("a", replicas="{ min = 0, max = 3 }", scale_down_idle='"1h"'), **folder)
    [scaled] = second.process.status()["scaling"]
    assert (scaled["replicas"], scaled["wanted"]) == (2, 2)
    assert sorted(each["name"] for each in second.process.status()["backends"]) == ["a", "a-2"]
    assert "a-2 still runs and is taken over" in second.log
