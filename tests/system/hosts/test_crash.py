"""Engines that end by themselves: nothing is lost by one crash."""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.operated_gateway import OperatedGateway, Serve, Stage, table

TOKENS = 50
FRAGILE = """
import fcntl, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Engine(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        with open(sys.argv[2], "ab") as seen:
            seen.write(body + b"\\n")
        if b"poison" in body:
            os._exit(1)
        self.answer()

    def answer(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

fcntl.flock(open(sys.argv[3]), fcntl.LOCK_SH)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Engine).serve_forever()
"""


def kill(gateway: OperatedGateway) -> None:
    os.kill(gateway.engines()["a"], signal.SIGKILL)


def until_phases(gateway: OperatedGateway, **counts: int) -> None:
    """Wait until there are as many requests in each phase, and no others."""

    def phases() -> dict[str, int]:
        told = [each["phase"] for each in gateway.requests()]
        return {phase: told.count(phase) for phase in told}

    gateway.until(lambda _: phases() == counts)


class Fragile(Protocol):
    def __call__(self, more: str = "") -> tuple[OperatedGateway, Path]: ...


@pytest.fixture
def fragile(serve: Serve, stage: Stage, tmp_path: Path) -> Fragile:
    """A model whose engine does not survive some requests and waits for the curtain; the file of what it was asked."""

    def build(more: str = "") -> tuple[OperatedGateway, Path]:
        program, seen = tmp_path / "engine.py", tmp_path / "seen"
        program.write_text(FRAGILE)
        command = f"{sys.executable} {program} ${{port}} {seen} {stage.curtain}"
        return serve(f'[models.a]\ndriver = "openai"\ncommand = "{command}"\n{more}'), seen

    return build


def test_an_idle_engine_that_was_killed_is_started_again_at_once(serve: Serve) -> None:
    gateway = serve(table("a"))
    assert gateway.ask("a").status_code == 200
    kill(gateway)
    gateway.until_running()
    assert gateway.ask("a").status_code == 200
    assert gateway.loads("a") == 2


def test_a_request_before_a_crash_is_noticed_is_served(serve: Serve) -> None:
    gateway = serve(table("a"))
    assert gateway.ask("a").status_code == 200
    kill(gateway)
    assert gateway.ask("a").status_code == 200


@pytest.mark.parametrize("concurrency", [0, 1, 2])
def test_a_crash_before_the_first_byte_loses_no_request(serve: Serve, stage: Stage, concurrency: int) -> None:
    gateway = serve(stage.table("a", concurrency=str(concurrency)))
    stage.open()
    phases = {"serving": concurrency, "queued": 5 - concurrency} if concurrency else {"serving": 5}
    with stage.mute():
        answers = [gateway.asking("a") for _ in range(5)]
        until_phases(gateway, **phases)
        kill(gateway)
    assert [answer.result().status_code for answer in answers] == [200] * 5
    assert gateway.loads("a") == 2


@pytest.mark.parametrize("broken_stream", ["continue", "error"])
def test_requests_waiting_behind_a_stream_that_a_crash_cuts_off_are_served(
    serve: Serve, stage: Stage, broken_stream: str
) -> None:
    gateway = serve(stage.table("a", concurrency="1") + f'[routing]\nbroken_stream = "{broken_stream}"\n')
    stage.open()
    body = {"model": "a", "messages": [], "stream": True, "max_tokens": TOKENS}
    with ExitStack() as stack:
        with stage.stall():
            stream = stack.enter_context(gateway.http.stream("POST", "/v1/chat/completions", json=body))
            lines = stream.iter_lines()
            first = next(lines)
            waiting = [gateway.asking("a", max_tokens=1) for _ in range(3)]
            until_phases(gateway, serving=1, queued=3)
            kill(gateway)
        answer = "\n".join([first, *lines])
    tokens = [int(token) for token in re.findall(r"token (\d+) ", answer)]
    assert tokens == list(range(len(tokens)))
    goes_on = broken_stream == "continue"
    assert (len(tokens) == TOKENS, "data: [DONE]" in answer, "event: error" in answer) == (
        goes_on,
        goes_on,
        not goes_on,
    )
    assert [answer.result().status_code for answer in waiting] == [200] * 3


def test_a_request_that_crashes_its_engine_is_sent_again_only_once(fragile: Fragile, stage: Stage) -> None:
    gateway, seen = fragile()
    stage.open()
    answer = gateway.ask("a", user="poison")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")
    assert seen.read_text().count("poison") == 2
    assert gateway.ask("a").status_code == 200, "the next request waits out the pause"


def test_requests_behind_one_that_crashes_its_engine_are_served_before_it_is_sent_again(
    fragile: Fragile, stage: Stage
) -> None:
    gateway, seen = fragile("concurrency = 1\n")
    answers = [gateway.asking("a", user="poison")]
    gateway.until_waiting(a="loading")
    answers += [gateway.asking("a", user=f"innocent {n}") for n in range(3)]
    until_phases(gateway, loading=4)
    stage.open()
    assert [answer.result().status_code for answer in answers] == [502, 200, 200, 200]
    asked = ["poison" if "poison" in line else "innocent" for line in seen.read_text().splitlines()]
    assert asked == ["poison", *["innocent"] * 3, "poison"]


def test_without_retries_only_waiting_requests_are_routed_again(fragile: Fragile, stage: Stage) -> None:
    gateway, seen = fragile("concurrency = 1\n[routing]\nmax_retries = 0\n")
    poison = gateway.asking("a", user="poison")
    gateway.until_waiting(a="loading")
    waiting = gateway.asking("a")
    until_phases(gateway, loading=2)
    stage.open()
    assert [poison.result().status_code, waiting.result().status_code] == [502, 200]
    assert seen.read_text().count("poison") == 1
