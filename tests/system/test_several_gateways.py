"""Several gateways behind HAProxy, as ``examples/several-gateways`` has them."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.parallel import all_of
from tests.support.paths import ROOT

EXAMPLE = ROOT / "examples" / "several-gateways"
pytestmark = pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is not installed")
STREAMS = 9


@pytest.fixture
def engines() -> Iterator[tuple[SimEngine, SimEngine]]:
    engines = SimEngine("llama", tpot="80ms"), SimEngine("llama", tpot="80ms")
    with all_of(*engines):
        yield engines


@pytest.fixture
def gateways(engines: tuple[SimEngine, SimEngine]) -> Iterator[list[RunningGateway]]:
    text = (EXAMPLE / "gateway.toml").read_text()
    for port, engine in zip((18301, 18302), engines, strict=True):
        text = text.replace(str(port), str(engine.port))
    with RunningGateway(text) as one, RunningGateway(text) as two, RunningGateway(text) as three:
        yield [one, two, three]


@pytest.fixture
def balancer(gateways: list[RunningGateway], tmp_path: Path) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = (EXAMPLE / "haproxy.cfg").read_text().replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    for number, gateway in enumerate(gateways, 1):
        text = text.replace(f"127.0.0.1:808{number}", gateway.url.removeprefix("http://"))
    (tmp_path / "haproxy.cfg").write_text(text)
    process = subprocess.Popen(["haproxy", "-f", str(tmp_path / "haproxy.cfg"), "-q"])
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(url))
        yield url
    finally:
        process.terminate()
        process.wait()


def wait_until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def answers(url: str) -> bool:
    try:
        return plain_httpx.get(f"{url}/ready").status_code == 200
    except httpx.TransportError:
        return False


class Streams:
    """Streams of some seconds, all of which have begun."""

    def __init__(self, url: str, pool: ThreadPoolExecutor) -> None:
        self._begun = 0
        self._whole = [pool.submit(self._read, url) for _ in range(STREAMS)]
        wait_until(lambda: self._begun == STREAMS)

    def broken(self) -> int:
        """How many were not whole, when all have ended."""
        return [each.result() for each in self._whole].count(False)

    def _read(self, url: str) -> bool:
        body = {"model": "llama", "stream": True, "max_tokens": 100, "ignore_eos": True, "messages": []}
        received = ""
        try:
            with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False) as answer:
                for text in answer.iter_text():
                    self._begun += not received
                    received += text
        except httpx.TransportError:
            pass
        return "data: [DONE]" in received


def test_of_a_killed_gateway_only_its_own_streams_break(
    balancer: str, gateways: list[RunningGateway], pool: ThreadPoolExecutor
) -> None:
    streams = Streams(balancer, pool)
    broken = live(gateways[0])
    gateways[0].kill()
    assert ask_often(balancer) == {200}
    assert streams.broken() == broken
    assert 0 < broken < STREAMS


def test_a_gateway_that_stops_breaks_nothing(
    balancer: str, gateways: list[RunningGateway], pool: ThreadPoolExecutor
) -> None:
    streams = Streams(balancer, pool)
    stopping = pool.submit(gateways[1].stop)
    while not stopping.done():
        assert ask_often(balancer) == {200}
    assert streams.broken() == 0


def ask_often(url: str) -> set[int]:
    """The statuses of the answers."""
    body = {"model": "llama", "max_tokens": 1, "messages": []}
    return {plain_httpx.post(f"{url}/v1/chat/completions", json=body).status_code for _ in range(20)}


def live(gateway: RunningGateway) -> int:
    return int(gateway.status()["requests"])


def test_the_example_starts_what_its_files_name() -> None:
    """The ports of the three files fit together."""
    ports = {name: set(re.findall(r"\b(?:1830\d|808\d)\b", (EXAMPLE / name).read_text())) for name in FILES}
    assert ports["gateway.toml"] == {"18301", "18302"}
    assert ports["haproxy.cfg"] == {"8080", "8081", "8082", "8083"}
    assert ports["run.py"] == ports["gateway.toml"] | ports["haproxy.cfg"]
    assert json.dumps(sorted(FILES)) == json.dumps(sorted(each.name for each in EXAMPLE.iterdir() if each.is_file()))


FILES = ["README.md", "gateway.toml", "haproxy.cfg", "run.py"]
