"""A swap of real llama-servers takes hardly longer than to stop the one and start the other by hand."""

from __future__ import annotations

import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.operated_gateway import engines_of
from tests.support.real_engines import RealEngine
from tests.support.real_gateways import gateway_for, llama_server, llama_table

pytestmark = [pytest.mark.engine, pytest.mark.slow]

ROUNDS = 7
ARGS = ["-c", "2048", "-np", "1"]


@pytest.fixture
def engine() -> RealEngine:
    return llama_server()


@pytest.fixture
def gateway(engine: RealEngine) -> Iterator[RunningGateway]:
    """A gateway that runs either ``a`` or ``b``."""
    with gateway_for(engine, "".join(llama_table(name, engine, *ARGS) for name in "ab")) as gateway:
        yield gateway


def first_token(url: str, model: str) -> None:
    """Ask for a stream, and read its first event."""
    body = {"model": model, "prompt": "hello", "max_tokens": 2, "stream": True}
    with plain_httpx.stream("POST", f"{url}/v1/completions", json=body) as response:
        assert response.status_code == 200
        next(response.iter_raw())


class ByHand:
    """One llama-server at a time, started and stopped without a gateway."""

    def __init__(self, program: Path, model: Path, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._command = [str(program), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), "--metrics"]
        self._command += ["-t", "1", "--no-warmup", *ARGS]
        self._process: subprocess.Popen[bytes] | None = None

    def swap(self) -> None:
        """Stop the server, start another, and read the first token of its answer."""
        self.stop()
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with plain_httpx.Client() as client:
            while not is_healthy(client, f"{self._url}/health"):
                time.sleep(0.005)
        first_token(self._url, "tiny")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait()


def is_healthy(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.HTTPError:
        return False


def seconds(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


@pytest.fixture
def hand(engine: RealEngine, free_port: int) -> Iterator[ByHand]:
    hand = ByHand(engine.program, engine.model, free_port)
    yield hand
    hand.stop()


def test_a_swap_costs_less_than_100_ms_more_than_by_hand(gateway: RunningGateway, hand: ByHand) -> None:
    hand.swap()
    first_token(gateway.url, "a")
    through, direct = [], []
    for number in range(ROUNDS):
        model = "ba"[number % 2]
        through.append(seconds(partial(first_token, gateway.url, model)) * 1000)
        direct.append(seconds(hand.swap) * 1000)
    figures = [round(statistics.median(times)) for times in (through, direct)]
    print(
        f"swap to the first token: {figures[0]} ms through the gateway, {figures[1]} ms by hand (medians of {ROUNDS})"
    )
    assert figures[0] < figures[1] + 100
    assert len(engines_of(gateway.pid)) == 1
