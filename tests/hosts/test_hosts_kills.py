"""kill -9 of engines and of the gateway: what each client sees, and what is recovered."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

Kill = Callable[[Any, str], None]


@pytest.fixture
def kill() -> Kill:
    """Kill an engine, by its model."""

    def now(home: Any, model: str) -> None:
        os.kill(home.engines()[model], signal.SIGKILL)

    return now


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def until_served(home: Any, model: str) -> None:
    """Ask until an engine that was killed is not left alone any more."""
    home.gateway.until(lambda _: model not in home.running())
    while (answer := home.ask(model)).status_code != 200:
        assert error_of(answer) == (503, "load_failed")
        time.sleep(int(answer.headers["retry-after"]))


def until_serving(home: Any, *models: str) -> None:
    home.gateway.until(
        lambda _: [each["model"] for each in home.requests() if each["phase"] == "serving"] == list(models)
    )


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_is_killed_while_it_loads(house: Any, stage: Any, kill: Kill, stream: bool) -> None:
    home = house(stage.sim("a") + stage.sim("b"))
    waiting = [home.asking("a", stream=stream) for _ in range(3)]
    home.until_asked(3)
    home.gateway.until(lambda _: "a" in home.engines())
    other = home.asking("b")
    home.until_waiting(b="queued")
    kill(home, "a")
    for answer in waiting:
        assert error_of(answer.result()) == (503, "load_failed")
        assert "it ended by SIGKILL while it started" in answer.result().json()["error"]["message"]
    stage.open()
    assert other.result().status_code == 200
    assert home.running() == {"b": "ready"}
    until_served(home, "a")


def test_an_engine_that_is_killed_while_it_answers(house: Any, sim: Any, kill: Kill) -> None:
    home = house(sim("a", ttft="1m") + "[routing]\nmax_retries = 0\n")
    answer = home.asking("a")
    until_serving(home, "a")
    kill(home, "a")
    assert error_of(answer.result()) == (502, "upstream_error")
    home.until_running()
    assert home.gauge("enginehouse_backend_pending") == 0


def test_an_engine_that_is_killed_before_it_answers_is_replaced_by_another_replica(
    house: Any, sim: Any, kill: Kill
) -> None:
    home = house(sim("a", ttft="1s", replicas="2"))
    home.operate("/api/models/a/load")
    answer = home.asking("a")
    until_serving(home, "a")
    kill(home, "a")
    assert answer.result().status_code == 200
    assert answer.result().headers["x-enginehouse-backend"] == "a-2"
    assert home.running() == {"a-2": "ready"}


def test_an_engine_that_is_killed_in_the_middle_of_a_stream(house: Any, sim: Any, kill: Kill) -> None:
    home = house(sim("a"))
    body = {"model": "a", "messages": [], "stream": True, "max_tokens": 8000}
    with home.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200
        events = (line for line in answer.iter_lines() if line)
        first = next(events)
        kill(home, "a")
        rest = list(events)
    assert json.loads(first.removeprefix("data: "))["choices"]
    assert rest[-1].startswith("data: ")
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "upstream_error"
    assert "data: [DONE]" not in rest
    until_served(home, "a")
    assert home.loads("a") == 2


def test_the_rest_of_a_killed_engine_is_killed_as_well(house: Any, stage: Any, kill: Kill, tmp_path: Path) -> None:
    """Its processes may hold memory that the next engine needs."""
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\n"$@" &\nwait\n')
    wrapper.chmod(0o755)
    table = stage.sim("a").replace('"""', f'"""{wrapper} ', 1)
    home = house(table)
    stage.open()
    stage.limit(1)
    assert home.ask("a").status_code == 200
    [shell] = [process for process in psutil.Process(home.gateway.pid).children() if process.name() == "wrapper"]
    shell.kill()
    home.until_running()
    assert home.engines() == {}
    until_served(home, "a")


def broken_off(answer: Future[httpx.Response]) -> bool:
    return isinstance(answer.exception(), httpx.TransportError)


def test_a_gateway_that_is_killed_while_engines_load(house: Any, stage: Any, tmp_path: Path) -> None:
    config = "[hosts.other]\n" + stage.sim("a") + stage.sim("b", host='"other"') + stage.sim("c")
    home = house(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    answers = [home.asking("a"), home.asking("b", stream=True)]
    home.gateway.until(lambda _: {*home.engines()} == {"a", "b"})
    answers.append(home.asking("c"))
    home.until_waiting(c="queued")
    engines = home.engines()
    home.gateway.kill()
    assert all(broken_off(answer) for answer in answers)

    again = house(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert again.running() == {"a": "starting", "b": "starting"}
    answers = []
    for model, phase in {"a": "loading", "b": "loading", "c": "queued"}.items():
        answers.append(again.asking(model))
        again.until_waiting(**{model: phase})
    assert again.engines() == engines, "what loads already is not loaded a second time"
    stage.open()
    assert [answer.result().status_code for answer in answers] == [200, 200, 200]
    assert again.engines()["b"] == engines["b"]
    assert again.history().count("a starting") == 1
    assert len(again.engines()) == 2


def test_a_gateway_that_is_killed_while_engines_serve(house: Any, sim: Any, tmp_path: Path) -> None:
    config = "[hosts.other]\n" + sim("a", ttft="1m") + sim("b", host='"other"')
    home = house(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    answer = home.asking("a")
    until_serving(home, "a")
    body = {"model": "b", "messages": [], "stream": True, "max_tokens": 8000}
    with home.http.stream("POST", "/v1/chat/completions", json=body) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        engines = home.engines()
        home.gateway.kill()
        seen = []
        with pytest.raises(httpx.TransportError):
            seen += lines
    assert "data: [DONE]" not in seen
    assert broken_off(answer)

    again = house(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert again.running() == {"a": "ready", "b": "ready"}
    assert again.engines() == engines
    assert again.ask("b").status_code == 200
    assert again.gauge("enginehouse_backend_pending") == 0


def test_a_gateway_that_is_killed_while_it_swaps(house: Any, stage: Any, tmp_path: Path) -> None:
    config = stage.sim("a", stop_command='"sleep 5"', stop_timeout='"2s"') + stage.sim("b")
    stage.open()
    home = house(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert home.ask("a").status_code == 200
    answer = home.asking("b")
    home.until_running(a="stopping")
    home.gateway.kill()
    assert broken_off(answer)

    again = house(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert again.running() == {"a": "ready"}
    assert again.ask("a").status_code == 200
