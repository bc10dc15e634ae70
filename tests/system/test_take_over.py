"""New gateways take over from running ones, which clients do not notice."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.fake_router import FakeRouter
from tests.support.operated_gateway import OperatedGateway, ServeAlone, Stage, table
from tests.support.upgraded_gateway import Traffic, UpgradedGateway, until_now

Upgradable = Callable[[OperatedGateway], UpgradedGateway]


@pytest.fixture
def upgradable(serve_alone: ServeAlone) -> Iterator[Upgradable]:
    """Makes the upgrades of a gateway, whose last process is stopped in the end, with its engines."""
    with ExitStack() as stack:

        def of(gateway: OperatedGateway) -> UpgradedGateway:
            upgraded = UpgradedGateway(gateway.process)
            stack.callback(upgraded.stop)
            return upgraded

        yield of


def config(*models: str, drain_timeout: str = "20s") -> str:
    return f'[server]\ndrain_timeout = "{drain_timeout}"\n' + "".join(models)


@pytest.mark.parametrize(("workers", "upgrades"), [(1, 3), (2, 2)])
def test_clients_do_not_notice_upgrades(
    serve_alone: ServeAlone, upgradable: Upgradable, workers: int, upgrades: int
) -> None:
    """Several in a row: with new and kept connections, and with streams that span an upgrade."""
    gateway = serve_alone(config(table("m", tpot="10ms")), ENGINEHOUSE_SERVER_WORKERS=str(workers))
    upgraded = upgradable(gateway)
    assert gateway.ask("m").status_code == 200
    engines, traffic = gateway.engines(), Traffic(gateway.process.url, "m")
    pids = [upgraded.pid]
    with traffic.flowing(streams=2, tokens=100):
        for _ in range(upgrades):
            traffic.until_each_had(2)
            upgraded.upgrade()
            pids.append(upgraded.pid)
        traffic.until_each_had(2)
    for pid in pids[:-1]:
        upgraded.until_alone(pid)

    assert not traffic.failed()
    assert len(set(pids)) == 1 + upgrades
    assert len(gateway.process.status()["workers"]) == workers
    assert gateway.engines() == engines
    assert "was not taken over" not in gateway.log
    assert gateway.running() == {"m": "ready"}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_loads_models_itself_stays_known(
    serve_alone: ServeAlone, upgradable: Upgradable, workers: int
) -> None:
    with FakeRouter("a", "b") as router:
        backend = f'[backends.one]\ndriver = "llamacpp_router"\nurl = "{router.url}"\n[checks]\ninterval = "50ms"\n'
        gateway = serve_alone(config(backend), ENGINEHOUSE_SERVER_WORKERS=str(workers))
        upgraded = upgradable(gateway)
        gateway.until(lambda status: len(status["replicas"]) == 2)
        assert gateway.ask("a").status_code == 200
        upgraded.upgrade()
        assert gateway.ask("a").status_code == 200
        assert gateway.ask("b").status_code == 200
        assert router.loads == ["a", "b"]
        router.models = ("a", "b", "c")
        gateway.until(lambda status: "c@one" in {each["replica"] for each in status["replicas"]})


def test_limits_of_keys_hold_across_an_upgrade(serve_alone: ServeAlone, upgradable: Upgradable) -> None:
    key = '[[auth.keys]]\nname = "{name}"\nkey = "{name}-key"\n{more}\n'
    keys = key.format(name="few", more="requests_per_minute = 1") + key.format(name="ops", more="admin = true")
    gateway = serve_alone(config(table("m")) + keys, ENGINEHOUSE_SERVER_WORKERS="2")
    upgraded = upgradable(gateway)
    assert gateway.ask("m", "few-key").status_code == 200
    upgraded.upgrade()
    assert gateway.ask("m", "few-key").status_code == 429


def test_a_broken_configuration_changes_nothing(serve_alone: ServeAlone) -> None:
    gateway = serve_alone(config(table("m")))
    assert gateway.ask("m").status_code == 200
    engines, traffic = gateway.engines(), Traffic(gateway.process.url, "m")
    gateway.process.write_config('[server]\nname = "default"\n[routing]\nno_such_key = 1\n')
    with traffic.flowing(streams=1):
        refused = gateway.operate("/api/reload?take_over=true")
        traffic.until_each_had(2)

    assert refused.status_code == 400
    assert "no_such_key" in refused.text
    assert not traffic.failed()
    assert gateway.engines() == engines


def test_a_new_gateway_that_does_not_start_changes_nothing(serve_alone: ServeAlone, tmp_path: Path) -> None:
    """Its configuration is good, but it cannot listen."""
    gateway = serve_alone(config(table("m")), ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert gateway.ask("m").status_code == 200
    traffic = Traffic(gateway.process.url, "m")
    with traffic.flowing(streams=1):
        traffic.until_each_had(1)
        with _another(tmp_path, "--host", "256.256.256.256") as other:
            _, error = other.communicate(timeout=60)
        traffic.until_each_had(2)

    assert other.returncode == 1
    assert "cannot listen on http://256.256.256.256" in error
    assert not traffic.failed()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_request_that_waits_for_a_load_is_served_by_the_new_gateway(
    serve_alone: ServeAlone, upgradable: Upgradable, stage: Stage, workers: int
) -> None:
    """The engine that is being started becomes the new gateway's."""
    gateway = serve_alone(config(stage.table("a")), ENGINEHOUSE_SERVER_WORKERS=str(workers))
    upgraded = upgradable(gateway)
    first, answer = upgraded.pid, gateway.asking("a")
    gateway.until_waiting(a="loading")
    until_now(lambda: gateway.engines())
    engines = gateway.engines()
    upgraded.upgrade()
    upgraded.until_alone(first)
    stage.open()

    assert answer.result().status_code == 200
    assert gateway.engines() == engines
    until_now(lambda: gateway.log.count("POST /v1/chat/completions") == 1)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stream_that_outlasts_the_drain_goes_on_at_the_new_gateway(
    serve_alone: ServeAlone, upgradable: Upgradable, workers: int
) -> None:
    model = '[models.m]\ndriver = "sim"\nargs = ["--ttft", "1ms", "--tpot", "20ms"]\n'
    gateway = serve_alone(config(model, drain_timeout="1s"), ENGINEHOUSE_SERVER_WORKERS=str(workers))
    upgraded = upgradable(gateway)
    assert gateway.ask("m").status_code == 200
    first, long = upgraded.pid, gateway.asking("m", stream=True, max_tokens=3000, ignore_eos=True)
    gateway.until_asked(1)
    upgraded.upgrade()
    upgraded.until_alone(first)
    gateway.until(lambda _: gateway.metric("enginehouse_continuations_total") == 1)
    [live] = gateway.requests()
    assert gateway.http.delete(f"/api/requests/{live['id']}").status_code == 200
    text = long.result().text
    assert "shutting_down" not in text
    assert '"code":"cancelled"' in text


@pytest.mark.parametrize("upgrades", [1, 2])
def test_an_engine_makes_room_when_the_old_gateway_has_its_answers(
    serve_alone: ServeAlone, upgradable: Upgradable, upgrades: int
) -> None:
    gateway = serve_alone(config(table("m", tpot="20ms"), table("n")))
    upgraded = upgradable(gateway)
    assert gateway.ask("m").status_code == 200
    first, long = upgraded.pid, gateway.asking("m", stream=True, max_tokens=400, ignore_eos=True)
    gateway.until_asked(1)
    for _ in range(upgrades):
        upgraded.upgrade()
    other = gateway.asking("n")
    assert long.result().text.endswith("data: [DONE]\n\n")
    assert other.result().status_code == 200
    upgraded.until_alone(first)
    assert gateway.running() == {"n": "ready"}


def test_changes_that_need_a_restart_apply(serve_alone: ServeAlone, upgradable: Upgradable, stage: Stage) -> None:
    """An engine whose launch differs is stopped once the old gateway no longer needs it."""
    gateway = serve_alone(config(stage.table("m")))
    stage.open()
    upgraded = upgradable(gateway)
    assert gateway.ask("m").status_code == 200
    engines, first = gateway.engines(), upgraded.pid
    gateway.process.write_config(config(table("m", ttft="2ms")) + "[telemetry]\nmetrics = false\n")
    assert gateway.http.get("/metrics").status_code == 200
    with stage.mute():
        slow = gateway.asking("m")
        gateway.until_asked(1)
        answer = gateway.operate("/api/reload?take_over=true").json()

    assert answer["taken_over_by"] not in (None, first)
    # The connection that this client has kept leads to the old gateway until that one closes it.
    gateway.process.until(lambda _: gateway.http.get("/metrics").status_code == 404)
    assert slow.result().status_code == 200
    assert gateway.ask("m").status_code == 200
    assert gateway.engines() != engines


def test_a_gateway_starts_where_none_runs(tmp_path: Path) -> None:
    with _another(tmp_path, "--port", "0") as other:
        assert other.stdout is not None
        assert "is listening on" in other.stdout.readline()
        other.terminate()


def test_the_service_manager_learns_the_new_process(
    serve_alone: ServeAlone, upgradable: Upgradable, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        gateway = serve_alone(config(table("m")), NOTIFY_SOCKET=str(tmp_path / "notify"))
        upgraded = upgradable(gateway)
        listening = f"READY=1\nSTATUS=Listening on {gateway.process.url}"
        assert manager.recv(4096).decode() == listening
        upgraded.upgrade()
        told = {manager.recv(4096).decode() for _ in range(2)}

    assert told == {f"MAINPID={upgraded.pid}", listening}


def _another(folder: Path, *options: str) -> subprocess.Popen[str]:
    """Another gateway with its state in ``folder``, which is to take over."""
    command = [sys.executable, "-m", "enginehouse", "serve", "--take-over", *options]
    environment = {"ENGINEHOUSE_STATE_DIR": str(folder), "PATH": os.defpath, "HOME": str(folder)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)
