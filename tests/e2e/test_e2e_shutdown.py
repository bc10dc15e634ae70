"""The gateway is asked to stop while it serves."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import httpx
import pytest

from enginehouse.testing.engines import SimEngine
from enginehouse.testing.gateway import RunningGateway

Ask = Callable[..., httpx.Response]


@pytest.fixture
def engine() -> Iterator[SimEngine]:
    with SimEngine("m") as engine:
        yield engine


def config(engine: SimEngine, drain_timeout: str) -> str:
    backend = f'[backends.a]\ndriver = "sim"\nurl = "{engine.url}"\nmodels = ["m"]\n'
    return f'[server]\ndrain_timeout = "{drain_timeout}"\n{backend}'


def refuses_connections(gateway: RunningGateway) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) != 0


def test_live_requests_end_and_no_new_ones_come_in(engine: SimEngine, ask: Ask) -> None:
    answers: list[httpx.Response] = []
    with RunningGateway(config(engine, "30s")) as gateway:
        gateway.until_health(a="healthy")
        engine.fault("hang")
        client = threading.Thread(target=lambda: answers.append(ask(gateway, "m", stream=True)))
        client.start()
        gateway.until(lambda status: status["requests"] == 1)
        os.kill(gateway.pid, signal.SIGTERM)
        while not refuses_connections(gateway):
            pass
        engine.clear()
        client.join()
        gateway.stop()

    assert answers[0].status_code == 200
    assert answers[0].text.endswith("data: [DONE]\n\n")


def test_a_request_that_outlives_the_drain_timeout_ends_with_an_error(engine: SimEngine, http: httpx.Client) -> None:
    body = {"model": "m", "prompt": "Hello", "stream": True}
    with RunningGateway(config(engine, "1s")) as gateway:
        gateway.until_health(a="healthy")
        engine.fault("slow", per_chunk="1h")
        with http.stream("POST", f"{gateway.url}/v1/completions", json=body) as answer:
            pieces = answer.iter_text()
            begun = next(pieces)
            gateway.stop()
            rest = "".join(pieces)

    assert begun.startswith("data: ")
    assert "event: error" in rest
    assert "shutting_down" in rest
    assert "[DONE]" not in rest


def test_watchers_do_not_hold_up_the_end(http: httpx.Client) -> None:
    with RunningGateway('[server]\ndrain_timeout = "1h"\n') as gateway, ExitStack() as stack:
        paths = ["/api/events", "/logs/stream"]
        answers = [stack.enter_context(http.stream("GET", gateway.url + path)) for path in paths]
        pieces = [answer.iter_text() for answer in answers]
        assert next(pieces[0]).startswith("event: snapshot")
        gateway.stop()
        for piece in pieces:
            "".join(piece)  # raises unless the stream ends as it should
