"""Engines that end by themselves: nothing is lost by one crash."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FRAGILE = """
import os, sys
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

HTTPServer(("127.0.0.1", int(sys.argv[1])), Engine).serve_forever()
"""


def kill(home: Any) -> None:
    os.kill(home.engines()["a"], signal.SIGKILL)


def until_phases(home: Any, **counts: int) -> None:
    """Wait until there are as many requests in each phase, and no others."""

    def phases() -> dict[str, int]:
        told = [each["phase"] for each in home.requests()]
        return {phase: told.count(phase) for phase in told}

    home.gateway.until(lambda _: phases() == counts)


@pytest.fixture
def fragile(house: Any, tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """A model whose engine does not survive some requests, and the file of what it was asked."""

    def build(more: str = "") -> tuple[Any, Path]:
        program, seen = tmp_path / "engine.py", tmp_path / "seen"
        program.write_text(FRAGILE)
        command = f"{sys.executable} {program} ${{port}} {seen}"
        return house(f'[models.a]\ndriver = "openai"\ncommand = "{command}"\n{more}'), seen

    return build


def test_an_idle_engine_that_was_killed_is_started_again_at_once(house: Any, sim: Any) -> None:
    home = house(sim("a"))
    assert home.ask("a").status_code == 200
    kill(home)
    home.until_running()
    assert home.ask("a").status_code == 200
    assert home.loads("a") == 2


def test_who_asks_before_a_crash_was_noticed_is_served(house: Any, sim: Any) -> None:
    home = house(sim("a"))
    assert home.ask("a").status_code == 200
    kill(home)
    assert home.ask("a").status_code == 200


@pytest.mark.parametrize("concurrency", [0, 1, 2])
def test_a_crash_before_the_first_byte_costs_nobody_an_answer(house: Any, sim: Any, concurrency: int) -> None:
    home = house(sim("a", ttft="500ms", concurrency=str(concurrency)))
    answers = [home.asking("a") for _ in range(5)]
    until_phases(home, **({"serving": concurrency, "queued": 5 - concurrency} if concurrency else {"serving": 5}))
    kill(home)
    assert [answer.result().status_code for answer in answers] == [200] * 5
    assert home.loads("a") == 2


def test_who_waits_while_a_stream_is_cut_off_by_a_crash_is_served(house: Any, sim: Any) -> None:
    home = house(sim("a", concurrency="1"))
    body = {"model": "a", "messages": [], "stream": True, "max_tokens": 8000}
    with home.http.stream("POST", "/v1/chat/completions", json=body) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: ")
        waiting = [home.asking("a", max_tokens=1) for _ in range(3)]
        until_phases(home, serving=1, queued=3)
        kill(home)
        rest = list(lines)
    assert "event: error" in rest
    assert "data: [DONE]" not in rest
    assert [answer.result().status_code for answer in waiting] == [200] * 3


def test_a_request_that_crashes_its_engine_is_sent_once_more_and_no_more(fragile: Any) -> None:
    home, seen = fragile()
    answer = home.ask("a", user="poison")
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")
    assert seen.read_text().count("poison") == 2
    refused = home.ask("a")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "load_failed"), "it fails again and again"
    assert refused.headers["retry-after"] == "2"
    home.gateway.until(lambda _: home.ask("a").status_code == 200)


def test_who_waits_behind_a_request_that_crashes_its_engine_is_served_before_it_comes_again(fragile: Any) -> None:
    home, seen = fragile("concurrency = 1\n")
    answers = [home.asking("a", user="poison")]
    home.until_waiting(a="loading")
    answers += [home.asking("a", user=f"innocent {n}") for n in range(3)]
    until_phases(home, loading=4)
    assert [answer.result().status_code for answer in answers] == [502, 200, 200, 200]
    asked = ["poison" if "poison" in line else "innocent" for line in seen.read_text().splitlines()]
    assert asked == ["poison", *["innocent"] * 3, "poison"]


def test_without_retries_what_was_sent_is_not_sent_again_but_what_waits_is(fragile: Any) -> None:
    home, seen = fragile("concurrency = 1\n[routing]\nmax_retries = 0\n")
    poison = home.asking("a", user="poison")
    home.until_waiting(a="loading")
    waiting = home.asking("a")
    until_phases(home, loading=2)
    assert [poison.result().status_code, waiting.result().status_code] == [502, 200]
    assert seen.read_text().count("poison") == 1
