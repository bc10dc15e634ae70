"""Every way to ask for a reload, and what is answered."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse.domain.errors import GatewayError
from tests.support.operated_gateway import table
from tests.support.reloaded_gateway import OpenAlone, OpenShared, ReloadedGateway

BROKEN = {
    "syntax": ("[models", "toml:4:8"),
    "unknown key": ("[routing]\nstratgy = 'x'", "routing.stratgy"),
    "secret": ("[backends.b]\nurl = 'http://b'\napi_key = 'file:nowhere'", "backends.b.api_key"),
    "rule between keys": ("[backends.b]\nurl = 'nonsense'", "backends.b.url"),
    "driver": ("[models.b]\ndriver = 'nobodys'\npath = 'x'", "models.b.driver"),
    "launch line": ("[models.b]\ndriver = 'sim'\nargs = ['${env:NOT_SET}']", "models.b.args"),
    "parameters of a plugin": ("[plugins.cache_aware]\nx = 1", "plugins.cache_aware.x"),
    "parameters of nobody": ("[plugins.nobody]\nx = 1", "plugins.nobody"),
    "rules of swapping": ("[scheduling.groups.g]\nmembers = ['nobody']", "scheduling.groups.g.members"),
    "rules of swapping on a new host": (
        "[models.b]\ndriver = 'sim'\nhost = 'new'\n[hosts.new]\n[scheduling]\nswapper = 'matrix'",
        "scheduling.matrix.sets",
    ),
    "filter": ("[routing]\nfilters = ['nobody']", "routing.filters"),
    "launcher": ("[models.b]\ndriver = 'sim'\nhost = 'new'\n[hosts.new]\nlauncher = 'nobody'", "hosts.new.launcher"),
    "two backends of one name": (
        "[models.b]\ndriver = 'sim'\nreplicas = 2\n[models.b-2]\ndriver = 'sim'",
        "",
    ),
}


def seen(home: ReloadedGateway) -> Any:
    """What operators see, but for what changes by itself."""
    status = home.process.status()
    for worker in status["workers"]:
        del worker["loop_busy"]
    for replica in status["replicas"]:  # the gateway measures engines from time to time, and caches grow
        replica["memory"] = bool(replica["memory"])
    for host in status["hosts"]:
        host["used"], host["replicas"] = bool(host["used"]), list(host["replicas"])
    return {key: value for key, value in status.items() if key != "uptime_s"}, home.running(), home.pids()


def test_whatever_is_wrong_everything_stays_as_it_was(open_shared: OpenShared) -> None:
    a = table("a")
    home = open_shared(a)
    assert home.ask("a").status_code == 200
    home.until(lambda status: status["replicas"][0]["capabilities"]["context_length"])
    before = seen(home)
    for what, (text, key) in BROKEN.items():
        answer = home.try_reload(a.replace("1ms", "2ms") + text)
        assert answer.status_code == 400, what
        error = answer.json()["error"]
        assert (error["code"], error["type"]) == ("invalid_request", "invalid_request_error"), what
        [problem] = error["details"]["errors"]
        assert key in problem["key"] + problem["file"], what
        assert problem["problem"], what
        assert "nothing has changed" in error["message"], what
        assert seen(home) == before, what
    assert home.ask("a").status_code == 200
    assert home.loads("a") == 1


def test_a_rule_that_is_broken_names_the_file_the_key_and_the_remedy(open_shared: OpenShared) -> None:
    home = open_shared(table("a"))
    answer = home.try_reload(table("a") + "[scheduling.groups.g]\nmembers = ['b']\n[routing]\nstratgy = 'x'")
    [first] = answer.json()["error"]["details"]["errors"]
    assert Path(first["file"]).name == "enginehouse.toml"
    assert first["remedy"] == 'did you mean "strategy"?'
    answer = home.try_reload(table("a") + "[scheduling.groups.g]\nmembers = ['b']")
    [second] = answer.json()["error"]["details"]["errors"]
    assert Path(second["file"]).name == "enginehouse.toml"
    assert second["remedy"]
    assert second["key"] in answer.json()["error"]["message"]


def test_rules_may_not_name_a_model_that_is_on_its_way_out(open_shared: OpenShared) -> None:
    rules = "[scheduling.groups.g]\nmembers = ['a', 'b']\n"
    home = open_shared(table("a") + table("b") + rules)
    [problem] = home.try_reload(table("b") + rules).json()["error"]["details"]["errors"]
    assert problem["key"] == "scheduling.groups.g.members"
    assert home.ask("a").status_code == 200


def test_every_error_is_told_at_once(open_shared: OpenShared) -> None:
    answer = open_shared(table("a")).try_reload("[routing]\nx = 1\ny = 2\n")
    assert [each["key"] for each in answer.json()["error"]["details"]["errors"]] == ["routing.x", "routing.y"]


def test_circular_aliases_have_a_code_of_their_own(open_shared: OpenShared) -> None:
    home = open_shared(table("a"))
    circle = "[routing.aliases]\nb = 'c'\nc = 'b'\n"
    answer = home.try_reload(table("a") + circle)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "alias_cycle")
    assert [each["code"] for each in error["details"]["errors"]] == ["alias_cycle"]
    error = home.try_reload(table("a") + circle + "[routing.weights]\nload = 1\n").json()["error"]
    assert error["code"] == "invalid_request"
    assert {each["code"] for each in error["details"]["errors"]} == {"alias_cycle", "invalid_request"}


def test_a_dry_run_tells_and_changes_nothing(open_shared: OpenShared) -> None:
    home = open_shared(table("a"))
    assert home.ask("a").status_code == 200
    home.until(lambda status: status["replicas"][0]["capabilities"]["context_length"])
    before = seen(home)
    new = table("b") + '[server]\nport = 1\n[routing]\nstrategy = "random"\n'
    answer = home.try_reload(new, dry_run="true").json()
    assert not answer["applied"]
    assert answer["changes"]["models"]["removed"] == ["a"]
    assert answer["changes"]["settings"] == ["routing.strategy"]
    assert seen(home) == before
    assert home.try_reload("[routing]\nx = 1", dry_run="true").status_code == 400
    assert home.try_reload(new, dry_run="perhaps").json()["error"]["param"] == "dry_run"


def test_what_needs_a_restart_is_told_in_the_answer_and_in_the_log(open_shared: OpenShared) -> None:
    home = open_shared(table("a"))
    for _ in range(2):
        changes = home.reload(table("a") + "[server]\ncors = ['*']\n[plugins]\ndisabled = ['vllm']\n")
        assert changes["needs_restart"] == ["server.cors", "plugins.disabled"]
    assert home.log.count("need a restart of the gateway: server.cors, plugins.disabled") == 2
    assert home.reload(table("a"))["needs_restart"] == []


def test_the_access_log_is_turned_off_and_on(open_shared: OpenShared) -> None:
    home = open_shared("")
    for model, wanted in (("first", "true"), ("hidden", "false"), ("last", "true")):
        assert home.reload(f"[telemetry]\naccess_log = {wanted}\n")["needs_restart"] == []
        assert home.ask(model).status_code == 404
    home.until(lambda _: " model=last " in home.log)
    assert " model=first " in home.log
    assert " model=hidden " not in home.log


def test_only_admins_may_ask(open_alone: OpenAlone) -> None:
    keys = "".join(
        f'[[auth.keys]]\nname = "{name}"\nkey = "{name}"\nadmin = {admin}\n'
        for name, admin in (("boss", "true"), ("user", "false"))
    )
    home = open_alone(keys, key="boss")
    assert home.try_reload(keys).status_code == 200
    for key, status in (("user", 403), ("nobody", 401)):
        assert home.http.post("/api/reload", headers={"x-api-key": key}).status_code == status


def test_a_gateway_can_be_hung_up_on(open_shared: OpenShared) -> None:
    home = open_shared(table("a"))
    home.process.write_config("[routing]\nx = 1")
    home.process.reload()
    home.until(lambda _: "routing.x: unknown key" in home.log)
    assert home.ask("a").status_code == 200
    home.process.write_config(table("b"))
    home.process.reload()
    home.until(lambda status: [each["name"] for each in status["backends"]] == ["b"])
    home.until(lambda _: "models added: b; models removed: a" in home.log)


def test_a_file_is_watched_from_when_that_is_asked_for(open_shared: OpenShared) -> None:
    home = open_shared("")
    home.reload("[server]\nwatch = true\n")
    home.process.write_config("[server]\nwatch = true\n" + table("a"))
    home.until(lambda status: [each["name"] for each in status["backends"]] == ["a"])
    assert "enginehouse.toml changed" in home.log


def test_secrets_in_files_are_read_anew(open_alone: OpenAlone, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("one")
    config = f'[[auth.keys]]\nname = "a"\nkey = "file:{tmp_path}/secret"\nadmin = true\n'
    home = open_alone(config, key="one")
    (tmp_path / "secret").write_text("two")
    assert home.reload(config)["settings"] == ["auth.keys"]
    assert home.http.get("/v1/models").status_code == 401
    assert home.http.get("/v1/models", headers={"x-api-key": "two"}).status_code == 200


def cli(home: ReloadedGateway, *arguments: str) -> Result:
    return CliRunner().invoke(enginehouse, ["reload", "--url", home.process.url, *arguments])


def test_the_command_line_tells_what_changed(open_shared: OpenShared) -> None:
    home = open_shared(table("a"))
    home.process.write_config(table("a", tpot="2ms") + table("b") + "[server]\nport = 1\n[checks]\ninterval = '1s'\n")
    expected = ["models added: b", "models changed: a", "models relaunched: a", "changed: checks.interval"]
    assert cli(home, "--dry-run").stdout.splitlines() == expected
    told = cli(home)
    assert told.stdout.splitlines() == expected
    assert cli(home, "--dry-run").stdout.splitlines() == ["nothing to change"]
    assert cli(home).stdout.splitlines() == ["nothing changed"]
    assert '"applied": true' in cli(home, "--json").stdout


def test_the_command_line_tells_what_needs_a_restart(open_shared: OpenShared) -> None:
    home = open_shared("")
    home.process.write_config("[server]\ncors = ['*']\n[routing.aliases]\na = 'b'\n")
    told = cli(home)
    assert told.stdout.splitlines() == ["changed: routing.aliases"]
    assert "needs a restart: server.cors" in told.stderr
    assert "routing.aliases: not in this configuration" in told.stderr


def test_the_command_line_tells_what_is_wrong(open_shared: OpenShared) -> None:
    home = open_shared("")
    home.process.write_config("[routing]\nx = 1\ny = 1\n")
    told = cli(home)
    assert isinstance(told.exception, GatewayError)
    assert "routing.x: unknown key" in str(told.exception)
    assert "routing.y: unknown key" in str(told.exception)


def test_without_a_file_there_is_the_embedded_default_and_then_the_file_that_comes(open_alone: OpenAlone) -> None:
    home = open_alone(None)
    assert {each["name"] for each in home.process.status()["backends"]} == {"sim-small", "sim-large"}
    assert home.reload(table("a"))["models"] == {
        "added": ["a"],
        "removed": ["sim-small", "sim-large"],
        "changed": [],
        "relaunched": [],
    }
    os.kill(home.process.pid, signal.SIGHUP)
    home.until(lambda _: "nothing changed" in home.log)


def test_a_404_names_the_models_that_are_listed_now(open_shared: OpenShared) -> None:
    home = open_shared(table("a") + table("b"))
    assert home.ask("c").json()["error"]["details"]["models"] == ["a", "b"]
    home.reload(table("a") + table("b") + "unlisted = true\n")
    assert home.ask("c").json()["error"]["details"]["models"] == ["a"]


def test_a_program_that_hangs_delays_no_request(open_alone: OpenAlone, tmp_path: Path) -> None:
    """The gateway asks the interpreter of a launch line for the engine's package."""
    asked, go_on = tmp_path / "asked", tmp_path / "go-on"
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {asked}\nread line < {go_on}\n")
    python.chmod(0o700)
    os.mkfifo(go_on)
    home = open_alone("")
    home.process.write_config(f'[models.m]\ndriver = "sim"\ncommand = "{python} -m engine --port ${{port}}"\n')
    reload = home.operating("/api/reload")
    home.until(lambda _: asked.exists())
    assert home.http.get("/health").status_code == 200
    assert not reload.done()
    go_on.write_text("\n")
    assert reload.result().status_code == 200
