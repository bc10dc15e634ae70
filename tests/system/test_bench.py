"""``enginehouse bench``, with real processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket

import psutil
import pytest
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse.domain.errors import GatewayError
from enginehouse_bench.contenders import Contender, Cores, listener, own_gateway, taking_turns, turn
from enginehouse_kit.engines import SimEngine

QUICK = ["--rounds", "2", "--seconds", "0.05", "--connections", "2"]


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(enginehouse, ["bench", *QUICK, *arguments])


def test_the_report_compares_the_gateway_with_its_engine_and_a_variant() -> None:
    with SimEngine():  # the process that forks the tests' servers starts with the first of them
        before = psutil.Process().children()
    result = run("--streams", "2", "--set", "routing.strategy=random", "--key", "planted-key", "--json")
    assert result.exit_code == 0, result.output
    assert "planted-key" not in result.output
    report = json.loads(result.stdout)
    names = ["enginehouse", "routing.strategy=random", "direct"]
    assert (list(report["contenders"]), report["rounds"]) == (names, 2)
    asked, streamed = report["workloads"]
    assert [(each["kind"], each["size"]) for each in (asked, streamed)] == [("requests", 2), ("streams", 2)]
    for each in (asked, streamed):
        assert list(each["figures"]) == names
        assert all(0 < own["p50_us"] <= own["p99_us"] and own["per_s"] > 0 for own in each["figures"].values())
        assert list(each["against"]) == names[1:]
        ratio = each["against"]["direct"]["per_s"]
        assert 0 < ratio["least"] <= ratio["median"] <= ratio["most"]
    assert all(report["rss_mib"][name] > 10 for name in names[:2])
    assert set(psutil.Process().children()) <= set(before)


def test_the_table_names_everything_that_was_measured() -> None:
    printed = run("--streams", "").stdout
    assert "2 clients" in printed
    assert re.search(r"enginehouse against direct: rate \d+\.\d", printed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--connections", "0"], "'0' is not a list of numbers above 0"),
        (["--streams", "x"], "'x' is not a list of numbers above 0"),
        (["--body", "big"], 'expected a size such as "512MiB"'),
        (["--set", "random"], "'random' must be SECTION.KEY=VALUE"),
    ],
)
def test_wrong_options_are_refused(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_a_gateway_that_does_not_start_is_told() -> None:
    wrong = {"routing.max_retries": "many"}
    expected = "ENGINEHOUSE_ROUTING_MAX_RETRIES: expected a whole number"
    with pytest.raises(GatewayError, match=expected), own_gateway("wrong", "http://127.0.0.1:9", wrong, Cores()):
        pass


def test_the_process_of_a_peer_is_found_by_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = listener(f"http://127.0.0.1:{port}")
    assert found == Contender(f"127.0.0.1:{port}", f"http://127.0.0.1:{port}", os.getpid())
    cpu = found.cpu_time()
    assert cpu is not None
    assert cpu.total > cpu.system > 0
    assert (found.memory() or 0) > 1 << 20


@pytest.mark.parametrize("url", ["localhost:1", "https://h", "nonsense"])
def test_a_peer_needs_an_address_of_plain_http(url: str) -> None:
    with pytest.raises(GatewayError, match="write it as http://host:port"):
        listener(url)


def test_figures_of_a_process_elsewhere_are_unknown() -> None:
    elsewhere = listener("http://192.0.2.1:80")
    assert (elsewhere.pid, elsewhere.cpu_time(), elsewhere.memory()) == (None, None, None)


def await_states(process: psutil.Process, *states: str) -> None:
    """Wait until the process and its child are in such states: a signal needs a moment to take effect."""
    while {each.status() for each in [process, *process.children(recursive=True)]} - set(states):
        assert process.is_running()


def test_contenders_are_paused_until_their_turn() -> None:
    stopped, running = (psutil.STATUS_STOPPED,), (psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING)
    shell = ["sh", "-c", "sleep 60 & wait"]
    with psutil.Popen(shell, start_new_session=True) as first, psutil.Popen(shell, start_new_session=True) as second:
        try:
            while not (first.children() and second.children()):
                assert first.is_running()
            own, theirs = Contender("own", "", first.pid, may_pause=True), Contender("theirs", "", second.pid)
            with taking_turns([own, theirs]):
                await_states(first, *stopped)
                await_states(second, *running)
                with turn(own):
                    await_states(first, *running)
                await_states(first, *stopped)
            await_states(first, *running)
        finally:
            for each in (first, second):
                os.killpg(each.pid, signal.SIGKILL)
