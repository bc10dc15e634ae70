"""``enginehouse serve`` without any configuration."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.openai_clients import openai_client

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def children(pid: int) -> dict[int, str]:
    """The processes that a process has started, with their command lines."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child): Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ") for child in found}


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with RunningGateway() as gateway:
        yield gateway


def test_the_greeting_says_what_to_try(gateway: RunningGateway) -> None:
    for hint in (
        f"listening on {gateway.url},",
        f"curl -N {gateway.url}/v1/chat/completions",
        f'base_url="{gateway.url}/v1"',
        f"enginehouse status --url {gateway.url}",
    ):
        assert hint in gateway.greeting


def test_the_curl_line_of_the_greeting_works(gateway: RunningGateway) -> None:
    line = re.search(r"  curl .*\n.*", gateway.greeting)
    assert line is not None

    told = subprocess.run(["bash", "-c", line[0].replace("curl", "curl -sS")], capture_output=True, text=True)

    assert told.stderr == ""
    assert told.stdout.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("asked", "served"), [("sim-small", "sim-small"), ("sim-large", "sim-large"), ("gpt-4", "sim-large")]
)
def test_the_simulated_models_answer(gateway: RunningGateway, asked: str, served: str) -> None:
    with openai_client(gateway.url) as client:
        raw = client.chat.completions.with_raw_response.create(
            model=asked, messages=[{"role": "user", "content": "Hello"}], max_tokens=3
        )

    answer = raw.parse()
    assert (answer.model, raw.headers["x-enginehouse-model"]) == (asked, served)
    assert len((answer.choices[0].message.content or "").split()) == 3


def load(gateway: RunningGateway, model: str) -> None:
    answer = plain_httpx.post(f"{gateway.url}/api/models/{model}/load")
    assert answer.json() == {"model": model, "state": "ready"}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_engines(how: signal.Signals) -> None:
    with RunningGateway() as gateway:
        load(gateway, "sim-small")
        [(engine, command)] = children(gateway.pid).items()
        port = int(command.split("--port ")[1].split()[0])
        assert not is_free(port)
        status = gateway.end(how)

        assert status in (0, -how)
        assert not Path(f"/proc/{engine}").exists()
        assert is_free(port)
        assert is_free(int(gateway.url.rpartition(":")[2]))
        assert "ERROR" not in gateway.log
        assert "Traceback" not in gateway.log


def test_a_signal_while_an_engine_starts_leaves_nothing_behind() -> None:
    with RunningGateway() as gateway, ThreadPoolExecutor() as pool:
        loading = pool.submit(plain_httpx.post, f"{gateway.url}/api/models/sim-large/load")
        gateway.until(lambda _: bool(children(gateway.pid)))
        engines = children(gateway.pid)
        [engine] = engines
        os.kill(engine, signal.SIGSTOP)  # or it might be ready before the gateway stops
        stopping = pool.submit(gateway.stop)
        while not is_free(int(gateway.url.rpartition(":")[2])):
            pass
        os.kill(engine, signal.SIGCONT)
        stopping.result()

        assert not any(Path(f"/proc/{pid}").exists() for pid in engines)
        answer = loading.result()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
        assert "ERROR" not in gateway.log


def test_an_engine_that_dies_is_reported() -> None:
    with RunningGateway() as gateway:
        load(gateway, "sim-small")
        [small] = children(gateway.pid)
        os.kill(small, signal.SIGKILL)

        status = gateway.until(lambda status: "failed" in {replica["state"] for replica in status["replicas"]})

    told = next(each for each in status["backends"] if each["name"] == "sim-small")
    assert "SIGKILL" in told["last_error"]
