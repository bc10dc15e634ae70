"""A configuration that changes under traffic: what is not concerned goes on."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from enginehouse_kit.engines import SimEngine
from enginehouse_local.processes import identity
from tests.support.operated_gateway import Stage, table
from tests.support.reloaded_gateway import OpenAlone, OpenShared


def test_a_stream_and_its_engine_go_on_while_everything_else_changes(open_alone: OpenAlone, stage: Stage) -> None:
    a = stage.table("a")
    keys = '[[auth.keys]]\nname = "one"\nkey = "one"\nadmin = true\n'
    home = open_alone(a + table("b", host='"other"') + "[hosts.other]\n" + keys, key="one")
    assert home.ask("b").status_code == 200
    stage.open()
    with stage.stall():
        stream = home.stream("a", 5)
        engine = home.pids()["a"]
        changes = home.reload(
            a
            + "ttl = '1h'\npriority = 3\nconcurrency = 9\nmemory = '1GiB'\n"
            + table("c", memory='"1GiB"')
            + '[routing]\nstrategy = "round_robin"\n[routing.aliases]\nalso = "a"\n'
            + '[checks]\ninterval = "1s"\n[timeouts]\nstall = "1m"\n'
            + '[scheduling]\nswapper = "memory"\nmax_queue = 7\n[hosts.local]\nmemory = "1TiB"\nmax_loads = 2\n'
            + '[telemetry]\nlog_format = "json"\n'
            + keys
            + '[[auth.keys]]\nname = "two"\nkey = "two"\n'
        )
        assert changes["models"] == {"added": ["c"], "removed": ["b"], "changed": ["a"], "relaunched": []}
        assert changes["hosts"]["removed"] == ["other"]
        assert changes["needs_restart"] == []
        assert home.ask("c").status_code == 200
        assert not stream.over
    assert home.ask("also", key="two").headers["x-enginehouse-model"] == "a"
    home.until_running(a="ready", c="ready")
    assert home.pids()["a"] == engine
    assert stream.is_whole()
    assert home.process.status()["strategy"] == "round_robin"
    assert home.loads("a") == 1


def test_an_engine_that_gets_another_driver_goes_on_at_its_address(open_shared: OpenShared) -> None:
    before = table("a", tpot="20ms")
    home = open_shared(before)
    stream = home.stream("a", 50)
    engine = home.pids()["a"]
    changes = home.reload(before.replace('driver = "sim"', 'driver = "openai"'))
    assert (changes["models"]["changed"], changes["models"]["relaunched"]) == (["a"], [])
    assert home.ask("a").status_code == 200
    assert stream.is_whole()
    assert home.pids() == {"a": engine}


def test_a_removed_model_serves_its_stream_to_the_end_and_nobody_else(open_shared: OpenShared, stage: Stage) -> None:
    home = open_shared(stage.table("a") + table("b"))
    stage.open()
    with stage.stall():
        stream = home.stream("a", 5)
        engine = home.pids()["a"]
        assert home.reload(table("b"))["models"]["removed"] == ["a"]
        assert home.ask("a").json()["error"]["code"] == "model_not_found"
        assert [each["name"] for each in home.process.status()["backends"]] == ["b"]
        assert home.running() == {"a": "stopping"}
    assert stream.is_whole()
    home.until_running()
    assert identity(engine) is None
    assert home.ask("b").status_code == 200
    explained = home.http.post("/api/explain/swap", json={"target": "b", "running": ["a"]})
    assert explained.status_code == 404, "nobody knows of it any more"


def test_what_still_serves_after_the_drain_timeout_is_stopped(open_shared: OpenShared) -> None:
    drain = '[server]\ndrain_timeout = "500ms"\n'
    home = open_shared(drain + table("a", tpot="20ms"))
    stream = home.stream("a", 10_000)
    home.reload(drain + table("b"))
    assert not stream.is_whole()
    home.until_running()


def test_a_model_that_is_launched_differently_serves_its_stream_then_is_launched_anew(
    open_shared: OpenShared, stage: Stage
) -> None:
    home = open_shared(stage.table("a"))
    stage.open()
    with stage.stall():
        stream = home.stream("a", 5)
        engine = home.pids()["a"]
        assert home.reload(stage.table("a", ttft="2ms"))["models"]["relaunched"] == ["a"]
        answer = home.asking("a")
        home.until_waiting(a="queued")
        assert home.pids() == {"a": engine}, "the two never run at once"
    assert stream.is_whole()
    assert answer.result().status_code == 200
    assert home.pids()["a"] != engine
    assert identity(engine) is None
    assert home.loads("a") == 2


def test_who_waits_for_a_load_gets_the_engine_that_is_configured_by_then(open_shared: OpenShared) -> None:
    home = open_shared(table("a", "1m"))
    waiting = home.asking("a")
    home.until_waiting(a="loading")
    [engine] = home.pids().values()
    home.reload(table("a"))
    assert waiting.result().status_code == 200
    assert identity(engine) is None
    assert home.running() == {"a": "ready"}


def test_who_waits_for_a_removed_model_is_refused_and_its_load_given_up(open_shared: OpenShared) -> None:
    home = open_shared(table("a", "1m") + table("b"))
    waiting = home.asking("a")
    home.until_waiting(a="loading")
    home.reload(table("b"))
    assert waiting.result().json()["error"]["code"] == "model_not_found"
    home.until_running()


def test_who_waits_for_a_removed_model_is_sent_to_its_fallback(open_shared: OpenShared) -> None:
    fallback = '[routing.fallbacks]\na = ["b"]\n'
    home = open_shared(table("a", "1m") + table("b") + fallback)
    waiting = home.asking("a")
    home.until_waiting(a="loading")
    home.reload(table("b") + fallback)
    assert waiting.result().headers["x-enginehouse-model"] == "b"


def test_who_waits_for_a_model_that_moves_to_another_host_waits_there(open_shared: OpenShared) -> None:
    hosts = "[hosts.one]\n[hosts.two]\n"
    home = open_shared(hosts + table("a", delay="1m", host='"one"') + table("b", host='"two"'))
    waiting = home.asking("a")
    home.until_waiting(a="loading")
    home.reload(hosts + table("a", host='"two"') + table("b", host='"one"'))
    assert waiting.result().status_code == 200
    assert home.process.status()["requests"] == 0


def test_a_client_that_waits_is_told_as_configured_when_it_came(open_shared: OpenShared) -> None:
    model = table("a", delay="1s")
    home = open_shared(model)
    changes = home.reload(model + 'progress = "comments"\n[scheduling]\nprogress_patience = "0"\n')
    assert changes["models"]["changed"] == ["a"]
    assert changes["models"]["relaunched"] == []
    body = {"model": "a", "messages": [], "max_tokens": 1, "stream": True}
    assert home.http.post("/v1/chat/completions", json=body).text.startswith(": loading, ")


def test_who_waits_keeps_waiting_when_the_swapper_changes(open_shared: OpenShared, stage: Stage) -> None:
    models = stage.table("a") + table("b") + table("c")
    home = open_shared(models)
    answers = [home.asking("a")]
    home.until_waiting(a="loading")
    for model in "bcb":
        answers.append(home.asking(model))
        home.until_waiting(**{model: "queued"})
    home.reload(models + '[scheduling]\nswapper = "matrix"\n[scheduling.matrix.sets]\nall = "a & b & c"\n')
    assert home.phases() == {"a": "loading", "b": "queued", "c": "queued"}
    stage.open()
    assert [answer.result().status_code for answer in answers] == [200] * 4
    assert home.running() == {"a": "ready", "b": "ready", "c": "ready"}
    assert [home.loads(model) for model in "abc"] == [1, 1, 1]


def test_a_host_loads_more_at_once_when_it_may(open_shared: OpenShared) -> None:
    models = table("a", "1m", memory='"1GiB"') + table("b", memory='"1GiB"') + '[scheduling]\nswapper = "memory"\n'
    home = open_shared(models)
    home.asking("a")
    home.until_waiting(a="loading")
    waiting = home.asking("b")
    home.until_waiting(b="queued")
    home.reload(models + "[hosts.local]\nmax_loads = 2\n")
    assert waiting.result().status_code == 200
    assert home.phases() == {"a": "loading"}
    home.reload("")


def test_replicas_come_and_go(open_shared: OpenShared) -> None:
    home = open_shared(table("a", replicas="1", preload="true"))
    home.until_running(a="ready")
    engine = home.pids()["a"]
    home.reload(table("a", replicas="3", preload="true"))
    for backend in ("a-2", "a-3"):
        assert backend in {each["name"] for each in home.process.status()["backends"]}
    home.http.post("/api/models/a/load")
    home.reload(table("a", replicas="1", preload="true"))
    assert [each["name"] for each in home.process.status()["backends"]] == ["a"]
    home.until_running(a="ready")
    assert home.pids() == {"a": engine}


def test_a_model_that_moves_to_another_host_is_never_there_twice(open_shared: OpenShared, stage: Stage) -> None:
    home = open_shared(stage.table("a"))
    stage.open()
    with stage.stall():
        stream = home.stream("a", 5)
        engine = home.pids()["a"]
        home.reload(stage.table("a", host='"other"') + "[hosts.other]\n")
        answer = home.asking("a")
        home.until_waiting(a="loading")
        assert home.pids() == {"a": engine}
    assert stream.is_whole()
    assert answer.result().status_code == 200
    assert home.pids()["a"] != engine
    assert identity(engine) is None


def test_a_model_that_comes_back_while_its_engine_leaves_is_launched_anew(
    open_shared: OpenShared, stage: Stage
) -> None:
    a = stage.table("a")
    home = open_shared(a)
    stage.open()
    with stage.stall():
        stream = home.stream("a", 5)
        engine = home.pids()["a"]
        home.reload("")
        home.reload(a)
        answer = home.asking("a")
        home.until_waiting(a="queued")
    assert stream.is_whole()
    assert answer.result().status_code == 200
    assert home.pids()["a"] != engine
    home.until_running(a="ready")
    assert identity(engine) is None


def test_an_idle_limit_counts_for_an_engine_that_runs(open_shared: OpenShared) -> None:
    home = open_shared(table("a"))
    home.ask("a")
    home.reload(table("a", ttl='"1s"'))
    home.until_running()
    assert home.loads("a") == 1
    assert home.engines() == {}


def test_an_added_model_can_be_preloaded(open_shared: OpenShared) -> None:
    home = open_shared("")
    home.reload(table("a", preload="true"))
    home.until_running(a="ready")
    assert home.loads("a") == 1
    assert home.requests() == [], "no request asked for it"


def test_new_checks_count_for_engines_and_backends_that_are_there(open_shared: OpenShared) -> None:
    with SimEngine("m") as engine:
        there = table("a") + remote(engine, "e")
        home = open_shared(there + '[checks]\ninterval = "1h"\n')
        assert home.ask("a").status_code == 200
        home.until_health(a="healthy", e="healthy")
        os.kill(home.pids()["a"], signal.SIGSTOP)
        home.reload(there + '[checks]\ninterval = "100ms"\ntimeout = "100ms"\nfailures = 2\nhung = "0s"\n')
        home.until_health(a="unhealthy")
        os.kill(home.pids()["a"], signal.SIGCONT)
        home.until_health(a="healthy")
        engine.kill()
        home.until_health(e="unhealthy")


def remote(engine: SimEngine, name: str, *, more: str = "") -> str:
    return f'[backends.{name}]\ndriver = "sim"\nurl = "{engine.url}"\nmodels = ["m"]\n{more}\n'


def test_backends_come_and_go_and_what_they_serve_ends_by_itself(open_shared: OpenShared) -> None:
    with SimEngine("m", tpot="20ms") as first, SimEngine("m") as second:
        home = open_shared(remote(first, "first"))
        home.until_health(first="healthy")
        stream = home.stream("m", 75)
        home.reload(remote(first, "first") + remote(second, "second"))
        home.until_health(first="healthy", second="healthy")
        home.reload(remote(second, "second"))
        assert {home.ask("m").headers["x-enginehouse-backend"] for _ in range(4)} == {"second"}
        assert stream.is_whole()
        assert len(first.requests()) == 1


def test_a_backend_keeps_its_health_and_figures_when_its_settings_change(open_shared: OpenShared) -> None:
    with SimEngine("m") as engine:
        home = open_shared(remote(engine, "e"))
        home.until_health(e="healthy")
        assert home.ask("m").status_code == 200
        [before] = home.process.status()["backends"]
        home.reload(remote(engine, "e", more='priority = 5\napi_key = "secret"'))
        [after] = home.process.status()["backends"]
        assert after == {**before, "priority": 5}
        assert after["avg_latency_ms"] > 0
        assert home.ask("m").status_code == 200
        assert engine.requests()[-1].header("authorization") == "Bearer secret"


def test_a_removed_key_is_refused_from_then_on(open_alone: OpenAlone) -> None:
    def keys(*names: str) -> str:
        return "".join(f'[[auth.keys]]\nname = "{name}"\nkey = "{name}"\nadmin = true\n' for name in names)

    home = open_alone(table("a") + keys("one", "two"), key="one")
    assert home.ask("a", key="two").status_code == 200
    home.reload(table("a") + keys("one"))
    assert home.ask("a", key="two").status_code == 401
    assert home.ask("a").status_code == 200


def test_the_engines_of_a_gateway_that_was_killed_after_a_reload_are_taken_over(open_alone: OpenAlone) -> None:
    free = "[scheduling.groups.all]\nmembers = ['a', 'b']\nswap = false\n"
    first = open_alone(table("a") + table("b") + free)
    for model in "ab":
        assert first.ask(model).status_code == 200
    after = table("a", ttl='"1h"') + table("b", tpot="2ms") + free
    first.reload(after)
    first.until_running(a="ready")
    assert first.ask("b").status_code == 200
    engines = first.pids()
    first.process.kill()
    second = open_alone(after)
    assert second.running() == {"a": "ready", "b": "ready"}
    assert second.pids() == engines


def test_rapid_edits_end_in_the_last_configuration(open_shared: OpenShared) -> None:
    home = open_shared(table("a"))
    assert home.ask("a").status_code == 200
    answers = []
    for round in range(12):
        home.process.write_config(table("a", tpot=f"{round + 2}ms", priority=str(round)))
        home.process.reload()
        answers.append(home.asking("a"))
        time.sleep(0.03)
    assert {answer.result().status_code for answer in answers} == {200}
    home.until(lambda status: status["backends"][0]["priority"] == 11)
    assert home.ask("a").status_code == 200
    home.until_running(a="ready")
    assert len(home.pids()) == 1
    command = Path(f"/proc/{home.pids()['a']}/cmdline").read_text()
    assert "13ms" in command
