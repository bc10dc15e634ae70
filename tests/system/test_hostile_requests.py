"""Whatever a request is, the gateway serves the others meanwhile, and gives its memory back."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import psutil
import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support.hostile_requests import MODELS, hostile_request
from tests.support.loop_turns import install_turns, longest_turn
from tests.support.plugins import Install

_LONGEST_S = 0.1
"""Of the loop's processor time, in one turn."""
_MOST_LEFT = 20 << 20
_WARM_UP = 50
"""Requests after which what is loaded once is loaded."""
_PATIENCE_S = 2.0
"""A gateway that waits for more of a request gets its end after that."""


class _Engine(BaseHTTPRequestHandler):
    """Reads each request, and answers ``Hi`` to all."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]})

    def do_POST(self) -> None:
        if self.headers.get("transfer-encoding"):
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                self.rfile.read(size + 2)
            self.rfile.readline()
        else:
            self.rfile.read(int(self.headers["content-length"] or 0))
        message = {"role": "assistant", "content": "Hi"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._answer({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage})

    def _answer(self, body: object) -> None:
        data = json.dumps(body).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        self.wfile.write(head.encode() + data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def gateway(install: Install, tmp_path: Path) -> Iterator[RunningGateway]:
    install_turns(install)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with ThreadingHTTPServer(("127.0.0.1", 0), _Engine) as engine:
        engine.daemon_threads = True
        threading.Thread(target=engine.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{engine.server_address[1]}"
        aliases = '[routing.aliases]\ngpt = "m"\n'
        settings = f'[backends.a]\ndriver = "openai"\nurl = "{url}"\nmodels = {json.dumps(MODELS)}\n{aliases}'
        with RunningGateway(settings, {"PYTHONPATH": path}) as gateway:
            gateway.until_health(a="healthy")
            yield gateway
        engine.shutdown()


def send(gateway: RunningGateway, data: bytes) -> bytes:
    """Send ``data`` on a connection of its own. Returns what comes back until that ends."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    answer = b""
    with socket.create_connection((host, int(port))) as connection, suppress(ConnectionError):
        sending = threading.Thread(target=_send_all, args=(connection, data))
        sending.start()
        connection.settimeout(_PATIENCE_S)
        while True:
            try:
                piece = connection.recv(1 << 16)
            except TimeoutError:
                connection.settimeout(60)
                connection.shutdown(socket.SHUT_WR)
                continue
            answer += piece
            if not piece:
                break
    sending.join()
    return answer


def _send_all(connection: socket.socket, data: bytes) -> None:
    with suppress(OSError):  # refused before it was sent
        connection.sendall(data)


def turn_of(gateway: RunningGateway, data: bytes) -> float:
    """The longest turn of the loop, in seconds, while it had ``data``."""
    send(gateway, data)
    return longest_turn(gateway.url).processor


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(20), id="20"),
        pytest.param(range(20, 2000), id="1980", marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
        pytest.param(range(2000, 20_000), id="18000", marks=[pytest.mark.slow, pytest.mark.timeout(3 * 3600)]),
    ],
)
def test_no_request_holds_the_loop_or_stays_in_memory(gateway: RunningGateway, seeds: range) -> None:
    process = psutil.Process(gateway.pid)
    longest_turn(gateway.url)
    for seed in range(20_000, 20_000 + _WARM_UP):
        send(gateway, hostile_request(Random(seed)))
    before, longest, bad = process.memory_info().rss, 0.0, []
    longest_turn(gateway.url)
    for seed in seeds:
        data = hostile_request(Random(seed))
        answer = send(gateway, data)
        turn = longest_turn(gateway.url).processor
        if answer.startswith(b"HTTP/1.1 500"):
            bad.append(f"seed {seed}: {answer[-300:]!r}")
        elif turn > _LONGEST_S and min(turn_of(gateway, data) for _ in range(2)) > _LONGEST_S:  # it was no chance
            bad.append(f"seed {seed}: {turn * 1000:.0f} ms, {data[:80]!r}")
        else:
            longest = max(longest, turn)
    assert not bad
    gateway.until(lambda _: process.memory_info().rss < before + _MOST_LEFT)
    print(f"longest turn {longest * 1000:.0f} ms, {(process.memory_info().rss - before) / 2**20:+.0f} MiB")
