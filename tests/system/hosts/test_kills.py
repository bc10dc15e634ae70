"""kill -9 of engines and of the gateway: the errors of clients, and the recovery."""

from __future__ import annotations

import json
import os
import signal
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

import httpx
import psutil
import pytest

from tests.support.operated_gateway import OperatedGateway, Serve, ServeAlone, Stage, table


class Kill(Protocol):
    """Kills the engine of a model."""

    def __call__(self, gateway: OperatedGateway, model: str, by: signal.Signals = signal.SIGKILL) -> None: ...


@pytest.fixture
def kill() -> Kill:
    """Kill an engine, by its model."""

    def now(gateway: OperatedGateway, model: str, by: signal.Signals = signal.SIGKILL) -> None:
        os.kill(gateway.engines()[model], by)

    return now


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def until_served(gateway: OperatedGateway, model: str) -> None:
    """Ask until an engine that was killed is not left alone any more."""
    gateway.until(lambda _: model not in gateway.running())
    while (answer := gateway.ask(model)).status_code != 200:
        assert error_of(answer) == (503, "load_failed")
        time.sleep(int(answer.headers["retry-after"]))


def until_serving(gateway: OperatedGateway, *models: str) -> None:
    gateway.until(
        lambda _: [each["model"] for each in gateway.requests() if each["phase"] == "serving"] == list(models)
    )


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_is_killed_while_it_loads(serve: Serve, stage: Stage, kill: Kill, stream: bool) -> None:
    gateway = serve(stage.table("a") + stage.table("b"))
    waiting = [gateway.asking("a", stream=stream) for _ in range(3)]
    gateway.until_asked(3)
    gateway.until(lambda _: "a" in gateway.engines())
    other = gateway.asking("b")
    gateway.until_waiting(b="queued")
    kill(gateway, "a", signal.SIGTERM)  # by SIGKILL it might be out of memory, and be tried again
    stage.open()
    assert other.result().status_code == 200
    failed = [answer for answer in waiting if answer.result().status_code != 200]
    assert failed, "the load that began for it has failed"
    for answer in failed:
        assert error_of(answer.result()) == (503, "load_failed")
        assert "it ended by SIGTERM while it started" in answer.result().json()["error"]["message"]
    assert gateway.ask("a").status_code == 200


def test_an_engine_that_is_killed_while_it_answers(serve: Serve, kill: Kill) -> None:
    gateway = serve(table("a", ttft="1m") + "[routing]\nmax_retries = 0\n")
    answer = gateway.asking("a")
    until_serving(gateway, "a")
    kill(gateway, "a")
    assert error_of(answer.result()) == (502, "upstream_error")
    gateway.until_running()
    assert gateway.metric("enginehouse_backend_pending") == 0


def test_an_engine_that_is_killed_before_it_answers_is_replaced_by_another_replica(
    serve: Serve, stage: Stage, kill: Kill
) -> None:
    gateway = serve(stage.table("a", replicas="2") + '[routing]\nstrategy = "smart"\n')
    stage.open()
    gateway.operate("/api/models/a/load")
    with stage.mute():
        answer = gateway.asking("a")
        until_serving(gateway, "a")
        kill(gateway, "a")
    assert answer.result().status_code == 200
    assert answer.result().headers["x-enginehouse-backend"] == "a-2"
    assert gateway.running() == {"a-2": "ready"}


def test_an_engine_that_is_killed_in_the_middle_of_a_stream(serve: Serve, stage: Stage, kill: Kill) -> None:
    gateway = serve(stage.table("a", broken_stream='"error"'))
    stage.open()
    body = {"model": "a", "messages": [], "stream": True}
    with stage.stall(), gateway.http.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.status_code == 200
        events = (line for line in answer.iter_lines() if line)
        first = next(events)
        kill(gateway, "a")
        rest = list(events)
    assert json.loads(first.removeprefix("data: "))["choices"]
    assert rest[-1].startswith("data: ")
    assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "upstream_error"
    assert "data: [DONE]" not in rest
    until_served(gateway, "a")
    assert gateway.loads("a") == 2


def test_the_rest_of_a_killed_engine_is_killed_as_well(serve: Serve, stage: Stage, kill: Kill, tmp_path: Path) -> None:
    """Its processes may hold memory that the next engine needs."""
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\n"$@" &\nwait\n')
    wrapper.chmod(0o755)
    table = stage.table("a").replace('"""', f'"""{wrapper} ', 1)
    gateway = serve(table)
    stage.open()
    stage.limit(1)
    assert gateway.ask("a").status_code == 200
    [shell] = [process for process in psutil.Process(gateway.process.pid).children() if process.name() == "wrapper"]
    shell.kill()
    gateway.until_running()
    assert gateway.engines() == {}
    until_served(gateway, "a")


def broken_off(answer: Future[httpx.Response]) -> bool:
    return isinstance(answer.exception(), httpx.TransportError)


def test_a_gateway_that_is_killed_while_engines_load(serve_alone: ServeAlone, stage: Stage, tmp_path: Path) -> None:
    config = "[hosts.other]\n" + stage.table("a") + stage.table("b", host='"other"') + stage.table("c")
    gateway = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    answers = [gateway.asking("a"), gateway.asking("b", stream=True)]
    gateway.until(lambda _: {*gateway.engines()} == {"a", "b"})
    answers.append(gateway.asking("c"))
    gateway.until_waiting(c="queued")
    engines = gateway.engines()
    gateway.process.kill()
    assert all(broken_off(answer) for answer in answers)

    again = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
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


def test_a_gateway_that_is_killed_while_engines_serve(serve_alone: ServeAlone, stage: Stage, tmp_path: Path) -> None:
    config = "[hosts.other]\n" + table("a", ttft="1m") + stage.table("b", host='"other"')
    stage.open()
    gateway = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    answer = gateway.asking("a")
    until_serving(gateway, "a")
    body = {"model": "b", "messages": [], "stream": True}
    with stage.stall(), gateway.http.stream("POST", "/v1/chat/completions", json=body) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        engines = gateway.engines()
        gateway.process.kill()
        seen: list[str] = []
        with pytest.raises(httpx.TransportError):
            seen += lines
    assert "data: [DONE]" not in seen
    assert broken_off(answer)

    again = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert again.running() == {"a": "ready", "b": "ready"}
    assert again.engines() == engines
    assert again.ask("b").status_code == 200
    assert again.metric("enginehouse_backend_pending") == 0


def test_a_gateway_that_is_killed_while_it_swaps(
    serve_alone: ServeAlone, stage: Stage, kill: Kill, fifo: Path, tmp_path: Path
) -> None:
    config = stage.table("a", stop_command=f'"cat {fifo}"', stop_timeout='"1h"') + stage.table("b")
    stage.open()
    gateway = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert gateway.ask("a").status_code == 200
    answer = gateway.asking("b")
    gateway.until_running(a="stopping")
    children = psutil.Process(gateway.process.pid).children
    gateway.until(lambda _: "cat" in [child.name() for child in children()])
    gateway.process.kill()
    assert broken_off(answer)

    again = serve_alone(config, ENGINEHOUSE_STATE_DIR=str(tmp_path))
    assert again.running() == {"a": "ready"}
    assert again.ask("a").status_code == 200
    fifo.open("wb").close()  # the command that was to stop it ends
    kill(again, "a")
    again.until_running()
