"""Engines that are stopped because they are idle: never one that serves a stream."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx

CONFIG = """
[server]
workers = {workers}
[models.m]
driver = "sim"
args = ["--ttft", "1ms", "--tpot", "{tpot}"]
ttl = "{ttl}"
context_length = 100000
"""


def stream(url: str, tokens: int, begun: threading.Event | None = None) -> str:
    """The text of a stream, read to its end."""
    text = ""
    body = {"model": "m", "stream": True, "max_tokens": tokens, "messages": [{"role": "user", "content": "Hello"}]}
    with plain_httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as answer:
        for piece in answer.iter_text():
            text += piece
            if begun is not None:
                begun.set()
    return text


def unload(url: str) -> httpx.Response:
    return plain_httpx.post(f"{url}/api/generate", json={"model": "m", "keep_alive": 0})


@pytest.fixture(params=[1, 2])
def workers(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


def test_keep_alive_0_cuts_no_stream_of_others(workers: int) -> None:
    with RunningGateway(CONFIG.format(workers=workers, tpot="20ms", ttl="1h")) as gateway:
        begun: Sequence[threading.Event] = [threading.Event() for _ in range(20)]
        with ThreadPoolExecutor(20) as pool:
            streams = [pool.submit(stream, gateway.url, 200, each) for each in begun]
            assert all(each.wait(30) for each in begun)
            assert unload(gateway.url).json()["done_reason"] == "unload"
            texts = [each.result() for each in streams]
        assert [text for text in texts if not text.endswith("data: [DONE]\n\n")] == []
        assert [each["state"] for each in gateway.status()["replicas"]] == ["ready"]
        assert unload(gateway.url).is_success
        gateway.until(lambda status: status["replicas"][0]["state"] == "stopped")


def test_an_idle_stop_cuts_no_stream(workers: int) -> None:
    """With streams longer than the ttl, one after the other."""
    with RunningGateway(CONFIG.format(workers=workers, tpot="15ms", ttl="200ms")) as gateway:
        for _ in range(4):
            assert stream(gateway.url, 100).endswith("data: [DONE]\n\n")
