"""What engines and gateways print, as operators read it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest


def talker(name: str) -> str:
    """A model whose engine prints two lines and ends."""
    script = f"echo {name} begins; echo a warning >&2; exit 3"
    return f"[models.{name}]\ncommand = '''sh -c \"{script}\" ${{port}}'''\n"


def tried(home: Any, *models: str) -> None:
    for model in models:
        assert home.operate(f"/api/models/{model}/load").status_code == 503


def text(home: Any, path: str) -> list[str]:
    answer = home.http.get(path)
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


def test_what_an_engine_printed_can_be_read(house: Any) -> None:
    home = house(talker("a") + talker("b"))
    assert text(home, "/api/logs/a") == []
    tried(home, "a")
    assert text(home, "/api/logs/a") == ["a begins", "a warning"]
    assert text(home, "/api/logs/a?lines=1") == ["a warning"]
    assert text(home, "/api/logs/a?history=false") == []
    assert text(home, "/api/logs/b") == []


def test_what_an_engine_prints_can_be_followed(house: Any) -> None:
    home = house(talker("a") + talker("b"))
    tried(home, "a")
    with (
        home.http.stream("GET", "/api/logs/a?follow=true&lines=1") as old,
        home.http.stream("GET", "/api/logs/b?follow=true&history=false") as new,
    ):
        lines = Reading(new.iter_lines())
        tried(home, "b")
        assert lines.until("a warning") == ["b begins", "a warning"]
        assert next(old.iter_lines()) == "a warning"


def test_all_logs_are_one_with_the_gateways_own(house: Any) -> None:
    home = house(talker("a") + talker("b"))
    tried(home, "a", "b")
    whole = text(home, "/logs")
    assert [line for line in whole if line.startswith("[")] == [
        "[a] a begins", "[a] a warning", "[b] b begins", "[b] a warning",
    ]  # fmt: skip
    started = next(number for number, line in enumerate(whole) if "a is starting" in line)
    failed = next(number for number, line in enumerate(whole) if "a is failed" in line)
    assert started < whole.index("[a] a begins") < failed < whole.index("[b] b begins")
    assert text(home, "/logs?lines=2") == whole[-2:]


def test_all_logs_can_be_followed_by_the_names_that_llama_swap_has_for_them(house: Any) -> None:
    home = house(talker("a"))
    with (
        home.http.stream("GET", "/logs/stream?no-history") as everything,
        home.http.stream("GET", "/logs/stream/upstream") as engines,
        home.http.stream("GET", "/logs/stream/proxy?no-history") as own,
        home.http.stream("GET", "/logs/stream/a") as one,
    ):
        streams = [Reading(each.iter_lines()) for each in (everything, engines, own, one)]
        tried(home, "a")
        assert "[a] a begins" in streams[0].until("a is failed")
        assert streams[1].until("a warning") == ["[a] a begins", "[a] a warning"]
        assert not any(line.startswith("[a]") for line in streams[2].until("a is failed"))
        assert streams[3].until("a warning") == ["a begins", "a warning"]


@pytest.mark.parametrize("path", ["/api/logs/{}", "/api/logs/{}?follow=true", "/logs/stream/{}"])
def test_what_has_no_log_is_not_found_and_what_has_one_is_named(house: Any, path: str) -> None:
    home = house(talker("a") + '[backends.far]\nurl = "http://127.0.0.1:1"\nmodels = ["m"]\n')
    for name in ("far", "nowhere/at/all"):
        answer = home.http.get(path.format(name))
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "not_found")
        assert f"'{name}'" in error["message"]
        assert "there are: a" in error["message"]


@pytest.mark.parametrize("query", ["lines=-1", "lines=some", "follow=maybe"])
def test_a_query_that_makes_no_sense_is_refused(house: Any, sim: Any, query: str) -> None:
    answer = house(sim("a")).http.get(f"/api/logs/a?{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


Logs = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def logs() -> Iterator[Logs]:
    """Runs ``enginehouse logs``."""
    running: list[subprocess.Popen[str]] = []

    def run(home: Any, *arguments: str, key: str = "") -> subprocess.Popen[str]:
        environment = {**os.environ, "ENGINEHOUSE_URL": home.gateway.url, "ENGINEHOUSE_KEY": key}
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


def test_the_command_line_shows_logs(house: Any, logs: Logs) -> None:
    home = house(talker("a") + talker("b"))
    tried(home, "a", "b")
    assert read(logs(home, "a")) == ["a begins", "a warning"]
    assert read(logs(home, "b", "-n", "1")) == ["a warning"]
    assert {"[a] a begins", "[b] b begins"} < set(read(logs(home)))
    wrong = logs(home, "nobody")
    assert "There is no launched backend 'nobody'" in wrong.communicate(timeout=30)[1]
    assert wrong.returncode == 1


@pytest.mark.parametrize("backend", [["a"], []])
def test_the_command_line_follows_until_it_is_interrupted(house: Any, logs: Logs, backend: list[str]) -> None:
    key = '[[auth.keys]]\nname = "op"\nkey = "k-admin"\nadmin = true\n'
    home = house(key + talker("a"), key="k-admin")
    tried(home, "a")
    following = logs(home, *backend, "--follow", "-n", "1000", key="k-admin")
    assert following.stdout is not None
    assert "a warning" in Reading(following.stdout).until("a warning")[-1]
    following.send_signal(signal.SIGINT)
    _, err = following.communicate(timeout=30)
    assert (following.returncode, err) == (0, "")


def test_the_command_line_needs_an_admin_key_where_keys_are_set(house: Any, logs: Logs) -> None:
    home = house('[[auth.keys]]\nname = "op"\nkey = "k-admin"\nadmin = true\n' + talker("a"), key="k-admin")
    process = logs(home, "-f")
    assert "$ENGINEHOUSE_KEY" in process.communicate(timeout=30)[1]
    assert process.returncode == 1


def test_what_follows_ends_with_the_gateway(house: Any, logs: Logs) -> None:
    home = house(talker("a"))
    tried(home, "a")
    following = logs(home, "-f")
    assert following.stdout is not None
    Reading(following.stdout).until("a warning")
    home.gateway.stop()
    following.communicate(timeout=30)
    assert following.returncode == 0
