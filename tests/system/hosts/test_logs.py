"""The logs of engines and gateways, as operators read them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.support.operated_gateway import OperatedGateway, Serve, ServeAlone, table


def talker(name: str) -> str:
    """A model whose engine prints two lines and ends."""
    script = f"echo {name} begins; echo a warning >&2; exit 3"
    return f"[models.{name}]\ncommand = '''sh -c \"{script}\" ${{port}}'''\n"


def tried(gateway: OperatedGateway, *models: str) -> None:
    for model in models:
        assert gateway.operate(f"/api/models/{model}/load").status_code == 503


def text(gateway: OperatedGateway, path: str) -> list[str]:
    answer = gateway.http.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    return list(answer.text.splitlines())


class Reading:
    """A stream of lines that is being read."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines

    def until(self, wanted: str) -> list[str]:
        read = []
        for line in self._lines:
            read.append(line)
            if wanted in line:
                return read
        raise AssertionError(f"the stream ended without {wanted!r}: {read}")


def test_the_output_of_an_engine_can_be_read(serve: Serve) -> None:
    gateway = serve(talker("a") + talker("b"))
    assert text(gateway, "/api/logs/a") == []
    tried(gateway, "a")
    assert text(gateway, "/api/logs/a") == ["a begins", "a warning"]
    assert text(gateway, "/api/logs/a?lines=1") == ["a warning"]
    assert text(gateway, "/api/logs/a?history=false") == []
    assert text(gateway, "/api/logs/b") == []


def test_the_output_of_an_engine_can_be_followed(serve: Serve) -> None:
    gateway = serve(talker("a") + talker("b"))
    tried(gateway, "a")
    with (
        gateway.http.stream("GET", "/api/logs/a?follow=true&lines=1") as old,
        gateway.http.stream("GET", "/api/logs/b?follow=true&history=false") as new,
    ):
        lines = Reading(new.iter_lines())
        tried(gateway, "b")
        assert lines.until("a warning") == ["b begins", "a warning"]
        assert next(old.iter_lines()) == "a warning"


def test_all_logs_are_one_with_the_gateways_own(serve: Serve) -> None:
    gateway = serve(talker("c") + talker("d"))
    tried(gateway, "c", "d")
    whole = text(gateway, "/logs")
    assert [line for line in whole if line.startswith("[")] == [
        "[c] c begins", "[c] a warning", "[d] d begins", "[d] a warning",
    ]  # fmt: skip
    started = next(number for number, line in enumerate(whole) if "c is starting" in line)
    failed = next(number for number, line in enumerate(whole) if "c is failed" in line)
    assert started < whole.index("[c] c begins") < failed < whole.index("[d] d begins")
    assert text(gateway, "/logs?lines=2") == whole[-2:]


def test_all_logs_can_be_followed_by_the_names_that_llama_swap_has_for_them(serve: Serve) -> None:
    gateway = serve(talker("a"))
    with (
        gateway.http.stream("GET", "/logs/stream?no-history") as everything,
        gateway.http.stream("GET", "/logs/stream/upstream") as engines,
        gateway.http.stream("GET", "/logs/stream/proxy?no-history") as own,
        gateway.http.stream("GET", "/logs/stream/a") as one,
    ):
        streams = [Reading(each.iter_lines()) for each in (everything, engines, own, one)]
        tried(gateway, "a")
        assert "[a] a begins" in streams[0].until("a is failed")
        assert streams[1].until("a warning") == ["[a] a begins", "[a] a warning"]
        assert not any(line.startswith("[a]") for line in streams[2].until("a is failed"))
        assert streams[3].until("a warning") == ["a begins", "a warning"]


@pytest.mark.parametrize("path", ["/api/logs/{}", "/api/logs/{}?follow=true", "/logs/stream/{}"])
def test_a_backend_without_a_log_is_not_found_and_those_with_one_are_named(serve: Serve, path: str) -> None:
    gateway = serve(talker("a") + '[backends.far]\nurl = "http://127.0.0.1:1"\nmodels = ["m"]\n')
    for name in ("far", "nowhere/at/all"):
        answer = gateway.http.get(path.format(name))
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "not_found")
        assert f"'{name}'" in error["message"]
        assert "there are: a" in error["message"]


@pytest.mark.parametrize("query", ["lines=-1", "lines=some", "follow=maybe"])
def test_a_query_that_makes_no_sense_is_refused(serve: Serve, query: str) -> None:
    answer = serve(table("a")).http.get(f"/api/logs/a?{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


Logs = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def logs() -> Iterator[Logs]:
    """Runs ``enginehouse logs``."""
    running: list[subprocess.Popen[str]] = []

    def run(gateway: OperatedGateway, *arguments: str, key: str = "") -> subprocess.Popen[str]:
        environment = {**os.environ, "ENGINEHOUSE_URL": gateway.process.url, "ENGINEHOUSE_KEY": key}
        command = [sys.executable, "-m", "enginehouse", "logs", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def read(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


def test_the_command_line_shows_logs(serve: Serve, logs: Logs) -> None:
    gateway = serve(talker("a") + talker("b"))
    tried(gateway, "a", "b")
    assert read(logs(gateway, "a")) == ["a begins", "a warning"]
    assert read(logs(gateway, "b", "-n", "1")) == ["a warning"]
    assert {"[a] a begins", "[b] b begins"} < set(read(logs(gateway)))
    wrong = logs(gateway, "missing")
    assert "There is no launched backend 'missing'" in wrong.communicate(timeout=30)[1]
    assert wrong.returncode == 1


@pytest.mark.parametrize("backend", [["a"], []])
def test_the_command_line_follows_until_it_is_interrupted(serve: Serve, logs: Logs, backend: list[str]) -> None:
    key = '[[auth.keys]]\nname = "op"\nkey = "k-admin"\nadmin = true\n'
    gateway = serve(key + talker("a"))
    tried(gateway, "a")
    following = logs(gateway, *backend, "--follow", "-n", "1000", key="k-admin")
    assert following.stdout is not None
    assert "a warning" in Reading(following.stdout).until("a warning")[-1]
    following.send_signal(signal.SIGINT)
    _, err = following.communicate(timeout=30)
    assert (following.returncode, err) == (0, "")


def test_the_command_line_needs_an_admin_key_where_keys_are_set(serve: Serve, logs: Logs) -> None:
    gateway = serve('[[auth.keys]]\nname = "op"\nkey = "k-admin"\nadmin = true\n' + talker("a"))
    process = logs(gateway, "-f")
    assert "$ENGINEHOUSE_KEY" in process.communicate(timeout=30)[1]
    assert process.returncode == 1


def test_following_a_log_ends_with_the_gateway(serve_alone: ServeAlone, logs: Logs) -> None:
    gateway = serve_alone(talker("a"))
    tried(gateway, "a")
    following = logs(gateway, "-f")
    assert following.stdout is not None
    Reading(following.stdout).until("a warning")
    gateway.process.stop()
    following.communicate(timeout=30)
    assert following.returncode == 0
