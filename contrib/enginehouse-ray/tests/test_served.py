"""A whole gateway whose engines run in a Ray cluster."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore
from urllib.parse import urlsplit

import pytest

pytest.importorskip("ray")

from two_nodes import FAR, TwoNodes, may_unshare

from enginehouse_kit.gateway import RunningGateway

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not may_unshare(), reason="needs network namespaces")]

CONFIG = f"""
[routing]
strategy = "round_robin"

[plugins.ray]
address = "{TwoNodes.address}"

[hosts.cluster]
launcher = "ray"
max_loads = 2
placement = {{ cpus = 2 }}

[models.m]
driver = "sim"
host = "cluster"
replicas = 2
preload = true
options = {{ tpot = "100ms" }}
start_timeout = "4m"
"""
TOKENS = 150


def stream(url: str, began: Semaphore) -> tuple[str, str]:
    """The text of a long stream, and the backend that began it."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=120)
    body = {"model": "m", "prompt": "once upon a time", "max_tokens": TOKENS, "stream": True, "temperature": 0}
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    text, ended = "", False
    for line in answer:
        data = line.strip().removeprefix(b"data: ")
        if data == b"[DONE]":
            ended = True
        elif data:
            if not text:
                began.release()
            event = json.loads(data)
            assert "error" not in event, event
            text += event["choices"][0]["text"] if event["choices"] else ""
    assert ended, "the stream was cut"
    return text, str(answer.getheader("x-enginehouse-backend"))


@pytest.fixture
def losable(cluster: TwoNodes) -> Iterator[TwoNodes]:
    """The cluster, whose second node is started again after the test."""
    yield cluster
    cluster.find_far()


def test_streams_of_a_lost_node_continue_at_another(losable: TwoNodes) -> None:
    with RunningGateway(CONFIG) as gateway, ThreadPoolExecutor() as pool:
        status = gateway.until(lambda now: all(each["state"] == "ready" for each in now["backends"]), 240)
        lost = next(each["name"] for each in status["backends"] if each["node"] == FAR)
        assert len({each["node"] for each in status["backends"]}) == 2
        started = Semaphore(0)
        streams = [pool.submit(stream, gateway.url, started) for _ in range(4)]
        assert all(started.acquire(timeout=30) for _ in streams)
        began = time.monotonic()
        losable.lose_far()
        gateway.until(lambda now: any(each["state"] == "failed" for each in now["backends"]), 30)
        print(f"failed after {time.monotonic() - began:.1f} s")
        answers = [each.result() for each in streams]
        assert {text for text, _ in answers} == {answers[0][0]}, "every stream has the whole text"
        assert lost in {backend for _, backend in answers}
        [failed] = [each for each in gateway.status()["backends"] if each["state"] == "failed"]
        assert "was lost: node 10.77.0.2" in failed["last_error"]
