"""Engines that are frozen, or that pass their health check and serve nobody."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.operated_gateway import engines_of

CONFIG = """
[checks]
interval = "100ms"
timeout = "100ms"
[models.m]
driver = "sim"
"""


def chat(url: str, *, stream: bool = False) -> httpx.Response:
    body = {"model": "m", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}], "stream": stream}
    return plain_httpx.post(f"{url}/v1/chat/completions", json=body)


def test_a_frozen_engine_is_replaced() -> None:
    with RunningGateway(CONFIG) as gateway, ThreadPoolExecutor(1) as pool:
        assert chat(gateway.url).is_success
        [before] = engines_of(gateway.pid)
        before.suspend()
        waiting = pool.submit(chat, gateway.url)
        assert waiting.result().is_success
        assert chat(gateway.url).is_success
        [after] = engines_of(gateway.pid)
        assert after.pid != before.pid
        assert "computed nothing" in gateway.log


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice]}).encode()


class HangingEngine:
    """An engine whose health page always answers; while ``hangs`` is set, nothing else gets an answer."""

    def __init__(self) -> None:
        self.hangs = threading.Event()
        self.released = threading.Event()
        engine = self

        class Answers(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._send(b'{"object": "list", "data": [{"id": "m", "object": "model"}]}', "application/json")

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                if engine.hangs.is_set():
                    engine.released.wait()
                    return
                events = (_event({"role": "assistant"}), _event({"content": "Hi"}), _event({}, "stop"), b"data: [DONE]")
                self._send(b"\n\n".join([*events, b""]), "text/event-stream")

            def _send(self, body: bytes, content_type: str) -> None:
                self.send_response(200)
                self.send_header("content-type", content_type)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> HangingEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


def test_an_engine_that_passes_its_health_check_and_serves_nobody_is_given_up() -> None:
    with HangingEngine() as first, HangingEngine() as second, ThreadPoolExecutor(1) as pool:
        config = f"""
[checks]
interval = "200ms"
hung = "1s"
[routing]
strategy = "priority_only"
[backends.first]
url = "{first.url}"
[backends.second]
url = "{second.url}"
priority = 1
"""
        with RunningGateway(config) as gateway:
            gateway.until_health(first="healthy", second="healthy")
            first.hangs.set()
            answer = pool.submit(chat, gateway.url, stream=True).result()
            assert answer.is_success, answer.text
            assert answer.headers["x-enginehouse-backend"] == "second"
            assert "Backend 'first' is given up. It hangs" in gateway.log
            assert _state(gateway) == "hung"
            page = plain_httpx.get(f"{gateway.url}/metrics").text
            assert 'enginehouse_hung_engines_total{backend="first"} 1' in page
            first.hangs.clear()
            gateway.until_health(first="healthy", second="healthy")
            assert _state(gateway) == "ready"


def _state(gateway: RunningGateway) -> str:
    status = plain_httpx.get(f"{gateway.url}/api/status").json()
    state: str = next(each["state"] for each in status["backends"] if each["name"] == "first")
    return state
