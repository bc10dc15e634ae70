from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from enginehouse_kit.engines import SimEngine
from tests.support import plain_httpx as http

Eventually = Callable[[Callable[[], bool]], bool]


def post(engine: SimEngine, path: str, **body: object) -> socket.socket:
    """Send a request for a long answer, and leave that unread."""
    length = {"max_tokens": 150_000, "max_output_tokens": 150_000}
    content = json.dumps({"model": "tiny", **length, **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", engine.port))
    connection.sendall(head.encode() + content)
    return connection


def statuses(engine: SimEngine) -> list[str]:
    return [request.status for request in engine.requests()]


@pytest.mark.parametrize("stream", [True, False])
def test_a_closed_connection_aborts_its_request(stuck_engine: SimEngine, eventually: Eventually, stream: bool) -> None:
    stuck_engine.clear()
    aborted = stuck_engine.metric("request_success_total", finished_reason="abort")
    for path in ("/v1/completions", "/v1/chat/completions"):
        asked = {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}
        with post(stuck_engine, path, stream=stream, **asked):
            assert eventually(lambda: stuck_engine.metric("num_requests_running") == 1)
            assert statuses(stuck_engine)[-1] == "running"
        assert eventually(lambda: stuck_engine.running() == 0)
    assert statuses(stuck_engine) == ["aborted"] * 2
    assert stuck_engine.metric("request_success_total", finished_reason="abort") == aborted + 2


def test_a_closed_connection_removes_a_waiting_request(stuck_engine: SimEngine, eventually: Eventually) -> None:
    stuck_engine.clear()
    running = [post(stuck_engine, "/v1/completions", prompt="x", stream=True) for _ in range(2)]
    with post(stuck_engine, "/v1/completions", prompt="x"):
        assert eventually(lambda: (stuck_engine.metric("num_requests_waiting"), stuck_engine.running()) == (1, 3))
    assert eventually(lambda: stuck_engine.metric("num_requests_waiting") == 0)
    assert stuck_engine.metric("num_requests_running") == 2
    assert stuck_engine.metric("kv_cache_usage_perc") > 0
    for connection in running:
        connection.close()
    assert eventually(lambda: stuck_engine.running() == 0)
    assert stuck_engine.metric("kv_cache_usage_perc") == 0


def test_requests_are_seen_byte_for_byte(engine: SimEngine) -> None:
    bodies = [b'{"model" :  "tiny", "prompt": "\\u00e9\xc3\xa9" , "x": 1.0}', b"\xff\x00"]
    for body in bodies:
        http.post(f"{engine.url}/v1/completions?a=b%20c", content=body, headers={"X-One": "1"})
    seen = engine.requests()
    assert [request.raw for request in seen] == bodies
    assert [request.path for request in seen] == ["/v1/completions?a=b%20c"] * 2
    assert [request.status for request in seen] == ["done"] * 2
    assert seen[0].header("x-one") == "1"
    assert seen[0].header("authorization") is None
    engine.clear_requests()
    assert engine.requests() == []


def test_only_work_is_logged(engine: SimEngine) -> None:
    for path in ("/health", "/metrics", "/version", "/v1/models"):
        assert http.get(engine.url + path).status_code == 200
    assert engine.requests() == []


def test_an_unknown_page_is_not_found(engine: SimEngine) -> None:
    answer = http.get(f"{engine.url}/nowhere")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFoundError")


def test_a_key_is_asked_for_where_the_api_is() -> None:
    with SimEngine("tiny", api_key="secret") as engine:
        assert http.get(f"{engine.url}/health").status_code == 200
        assert http.get(f"{engine.url}/v1/models").status_code == 401
        wrong, right = ({"authorization": f"Bearer {key}"} for key in ("other", "secret"))
        assert http.get(f"{engine.url}/v1/models", headers=wrong).json()["error"]["type"] == "AuthenticationError"
        assert http.get(f"{engine.url}/v1/models", headers=right).status_code == 200


def test_it_ends_in_good_order_while_it_works(capfd: pytest.CaptureFixture[str]) -> None:
    long = SimEngine("tiny", tpot="1h", context_length=200_000)
    with long as engine, post(engine, "/v1/completions", prompt="x", stream=True) as stream:
        got = b""
        while b"data: " not in got:
            got += stream.recv(10_000)
        assert engine.stop() == 0
        assert stream.recv(10_000) == b""
    assert capfd.readouterr().err == ""


def test_a_killed_engine_does_not_answer() -> None:
    with SimEngine("tiny") as engine:
        assert engine.kill() == -signal.SIGKILL
        with pytest.raises(OSError, match="refused"):
            engine.requests()


def test_it_takes_its_time_to_start() -> None:
    began = time.monotonic()
    with SimEngine("tiny", start_delay="600ms") as engine:
        assert time.monotonic() - began >= 0.6
        assert http.get(f"{engine.url}/health").status_code == 200


def test_an_address_that_is_taken_is_named(engine: SimEngine) -> None:
    command = [sys.executable, "-m", "enginehouse_sim", "--port", str(engine.port)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"Error: cannot listen on 127.0.0.1, port {engine.port}: ")


def test_a_control_port_that_is_taken_is_named(engine: SimEngine) -> None:
    command = [sys.executable, "-m", "enginehouse_sim", "--port", "0", "--control-port", str(engine.port)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.stderr.startswith(f"Error: cannot listen on 127.0.0.1, port {engine.port}: ")


def test_a_flag_that_makes_no_sense_is_refused() -> None:
    command = [sys.executable, "-m", "enginehouse_sim", "--ttft", "soon"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert 'expected a duration such as "500ms", "30s" or "10m", got "soon"' in ended.stderr


def test_an_engine_that_does_not_start_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="did not start"):
        SimEngine("tiny", concurrency=0).start()
    assert "--concurrency" in capfd.readouterr().err
