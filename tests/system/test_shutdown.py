"""The gateway is asked to stop while it serves."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import psutil
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support.operated_gateway import ServeAlone, table


@pytest.fixture(scope="module")
def shared_engine() -> Iterator[SimEngine]:
    with SimEngine("m") as engine:
        yield engine


@pytest.fixture
def engine(shared_engine: SimEngine) -> Iterator[SimEngine]:
    """The engine of the module, without faults."""
    yield shared_engine
    shared_engine.clear()


def config(engine: SimEngine, drain_timeout: str) -> str:
    backend = f'[backends.a]\ndriver = "sim"\nurl = "{engine.url}"\nmodels = ["m"]\n'
    return f'[server]\ndrain_timeout = "{drain_timeout}"\n{backend}'


def refuses_connections(gateway: RunningGateway) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(gateway.url.rpartition(":")[2]))) != 0


def test_live_requests_end_and_no_new_ones_come_in(serve_alone: ServeAlone, engine: SimEngine) -> None:
    gateway = serve_alone(config(engine, "30s"))
    gateway.until_health(a="healthy")
    engine.fault("hang")
    answer = gateway.asking("m", stream=True)
    gateway.until_asked(1)
    os.kill(gateway.process.pid, signal.SIGTERM)
    while not refuses_connections(gateway.process):
        pass
    engine.clear()
    assert answer.result().status_code == 200
    assert answer.result().text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/completions?with=query"])
def test_a_request_that_outlives_the_drain_timeout_ends_with_an_error(
    engine: SimEngine, http: httpx.Client, path: str
) -> None:
    body = {"model": "m", "prompt": "Hello", "stream": True}
    with RunningGateway(config(engine, "1s")) as gateway:
        gateway.until_health(a="healthy")
        engine.fault("slow", per_chunk="1h")
        with http.stream("POST", f"{gateway.url}{path}", json=body) as answer:
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


def test_ready_answers_503_during_the_drain_delay_while_requests_are_served(
    serve_alone: ServeAlone, engine: SimEngine
) -> None:
    gateway = serve_alone(config(engine, "30s").replace("[server]", '[server]\ndrain_delay = "1h"'))
    gateway.until_health(a="healthy")
    assert gateway.http.get("/ready").status_code == 200
    os.kill(gateway.process.pid, signal.SIGTERM)
    while (answer := gateway.http.get("/ready")).status_code == 200:
        pass
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert gateway.ask("m").status_code == 200
    os.kill(gateway.process.pid, signal.SIGINT)  # a second signal ends the delay


def test_a_request_that_waits_for_a_load_does_not_hold_up_the_end(serve_alone: ServeAlone) -> None:
    gateway = serve_alone('[server]\ndrain_timeout = "1h"\n' + table("a", "3600s", start_timeout='"1h"'))
    waiting = gateway.asking("a")
    gateway.until_waiting(a="loading")
    gateway.process.stop()
    answer = waiting.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")


@pytest.mark.parametrize("workers", [1, 2])
def test_requests_that_have_arrived_before_a_stop_get_an_answer(serve_alone: ServeAlone, workers: int) -> None:
    """Also those whose connection the gateway has not accepted yet."""
    gateway = serve_alone(f"[server]\nworkers = {workers}\n")
    port = int(gateway.process.url.rpartition(":")[2])
    processes = [psutil.Process(each["pid"]) for each in gateway.process.status()["workers"]]
    owner = psutil.Process(gateway.process.pid)
    with ExitStack() as stack:
        for each in processes:
            each.suspend()
        clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(50)]
        for client in clients:
            client.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        owner.terminate()
        for each in processes:
            each.resume()
        answers = [_answer(client) for client in clients]
    assert {each[:9] for each in answers} == {b"HTTP/1.1 "}


def _answer(client: socket.socket) -> bytes:
    try:
        return client.recv(1000)
    except ConnectionResetError:
        return b"reset"
