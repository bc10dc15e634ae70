"""A gateway whose backends are the records of a real DNS server."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway, Status

from .knot import KNOT, Knot

pytestmark = pytest.mark.skipif(KNOT is None, reason="Knot DNS is not installed")

CONFIG = """
[discovery.servers]
type = "dns"
service = "_http._tcp.engines.test"
resolver = "{resolver}"
driver = "sim"
interval = "50ms"

[discovery.hosts]
type = "dns"
name = "all.engines.test"
port = 9
resolver = "{resolver}"
driver = "sim"
interval = "50ms"
"""


def test_records_appear_change_and_vanish(tmp_path: Path) -> None:
    with ExitStack() as stack:
        knot = stack.enter_context(Knot(tmp_path))
        one, two = (stack.enter_context(SimEngine("sim")) for _ in range(2))
        gateway = stack.enter_context(RunningGateway(CONFIG.format(resolver=knot.address)))
        knot.serve(server(one, 0), "all A 127.0.0.2", "all A 127.0.0.3")
        gateway.until(lambda now: urls(now, "hosts-") == {"http://127.0.0.2:9", "http://127.0.0.3:9"})
        gateway.until(lambda now: priorities(now) == {one.port: 0})
        assert ask(gateway) == f"servers-localhost:{one.port}"
        knot.serve(server(one, 5), server(two, 3), "all A 127.0.0.3", "all AAAA ::1")
        gateway.until(lambda now: priorities(now) == {one.port: 5, two.port: 3})
        gateway.until(lambda now: urls(now, "hosts-") == {"http://127.0.0.3:9", "http://[::1]:9"})
        knot.serve(server(two, 3))
        gateway.until(lambda now: priorities(now) == {two.port: 3})
        assert ask(gateway) == f"servers-localhost:{two.port}"
        gateway.until(lambda now: not urls(now, "hosts-"))


def server(engine: SimEngine, priority: int) -> str:
    return f"_http._tcp SRV {priority} 5 {engine.port} localhost."


def urls(status: Status, prefix: str) -> set[str]:
    return {each["url"] for each in status["backends"] if each["name"].startswith(prefix)}


def priorities(status: Status) -> dict[int, int]:
    """The priority of each healthy server, by its port."""
    return {
        int(each["url"].rpartition(":")[2]): each["priority"]
        for each in status["backends"]
        if each["name"].startswith("servers-") and each["health"] == "healthy"
    }


def ask(gateway: RunningGateway) -> str:
    """The backend that answers."""
    body = json.dumps({"model": "sim", "prompt": "x", "max_tokens": 1}).encode()
    request = Request(f"{gateway.url}/v1/completions", body, {"content-type": "application/json"})
    with urlopen(request, timeout=20) as answer:
        return str(answer.headers["x-enginehouse-backend"])
