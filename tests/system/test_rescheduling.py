"""Load moves live requests between simulated engines, on the commands of the gateway."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.parallel import all_of
from tests.support.sampled_text import generate

PROMPT = "all aboard " * 40
TOKENS = 400
STREAMS = 6
RESCHEDULING = """
[routing]
strategy = "priority_only"

[checks]
interval = "200ms"

[rescheduling]
enabled = true
interval = "100ms"
policies = ["neutral_load", "neutral_failover"]
neutral_load_metric = "num_requests"
neutral_load_threshold = 0
load_balance_threshold = 2
req_select_rule = "NUM_REQ"
req_select_value = 1
cool_down = "0s"
"""


@pytest.fixture(scope="module")
def engines() -> Iterator[tuple[SimEngine, SimEngine]]:
    a, b = (SimEngine("m", tpot=tpot, llumlet_port=0) for tpot in ("200ms", "5ms"))
    with all_of(a, b):
        yield a, b


@pytest.fixture
def gateway(engines: tuple[SimEngine, SimEngine]) -> Iterator[RunningGateway]:
    backends = "".join(
        f'[backends.{name}]\ndriver = "sim"\nurl = "{engine.url}"\npriority = {place}\n'
        for place, (name, engine) in enumerate(zip("ab", engines, strict=True))
    )
    with RunningGateway(RESCHEDULING + backends) as gateway:
        gateway.until_health(a="healthy", b="healthy")
        yield gateway


def read_stream(url: str, name: str) -> str:
    """The text of a whole stream."""
    body = {"model": "m", "prompt": PROMPT, "max_tokens": TOKENS, "stream": True}
    text, ended = "", False
    with (
        plain_httpx.Client(base_url=url) as client,
        client.stream("POST", "/v1/completions", json=body, headers={"x-request-id": name}) as response,
    ):
        for line in response.iter_lines():
            if line == "data: [DONE]":
                ended = True
            elif line.startswith("data: "):
                event: dict[str, Any] = json.loads(line.removeprefix("data: "))
                assert "error" not in event, event
                text += "".join(choice["text"] for choice in event["choices"])
    assert ended
    return text


def test_load_moves_streams_and_no_client_notices(
    gateway: RunningGateway, engines: tuple[SimEngine, SimEngine]
) -> None:
    with ThreadPoolExecutor(STREAMS) as pool, plain_httpx.Client(base_url=gateway.url) as client:
        readers: list[Future[str]] = [pool.submit(read_stream, gateway.url, f"r{number}") for number in range(STREAMS)]
        gateway.until(lambda _: sum(bool(each["moved"]) for each in _records(client)) >= 2)
        view = _view(client)
        client.post("/api/backends/a/drain")  # the rest would take more than a minute there
        texts = [reader.result() for reader in readers]
        records = [each for each in _records(client) if each["moved"]]
        metrics = client.get("/metrics").text

    assert texts == ["".join(islice(generate(0, PROMPT), TOKENS))] * STREAMS
    assert {request for each in records for request in each["moved"]} <= {f"r{number}" for number in range(STREAMS)}
    first = records[-1]
    assert first.keys() == {
        *("time", "policy", "source", "destination", "rule", "order", "value"),
        *("migrator", "moved", "refused", "error", "duration_ms"),
    }
    assert (first["policy"], first["source"], first["destination"]) == ("neutral_load", "a", "b")
    assert (first["migrator"], first["error"]) == ("llumlet", None)
    _check_view(view)
    label = 'rescheduling_req_select_order="SR",rescheduling_req_select_rule="NUM_REQ"'
    assert f"enginehouse_rescheduling_total{{{label}}}" in metrics


def test_the_cluster_is_a_view_for_explanations(gateway: RunningGateway, tmp_path: Path) -> None:
    with plain_httpx.Client(base_url=gateway.url) as client:
        gateway.until(lambda _: len(_view(client)["instances"]) == 2)
        view = _view(client)
    view["instances"][0]["status"]["schedulable"] = False
    (tmp_path / "view.json").write_text(json.dumps(view))
    (tmp_path / "enginehouse.toml").write_text(RESCHEDULING)
    explain = [sys.executable, "-m", "enginehouse", "explain", "rescheduling", "--json"]
    paths = ["--config", str(tmp_path / "enginehouse.toml"), "--view", str(tmp_path / "view.json")]
    plan = json.loads(subprocess.run([*explain, *paths], capture_output=True, check=True, text=True).stdout)

    assert [(each["policy"], each["source"], each["destination"]) for each in plan["migrations"]] == [
        ("neutral_failover", "a", "b")
    ]


def _records(client: httpx.Client) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = client.get("/api/migrations").json()["migrations"]
    return records


def _view(client: httpx.Client) -> dict[str, Any]:
    view: dict[str, Any] = client.get("/api/cluster").json()
    return view


def _check_view(view: dict[str, Any]) -> None:
    a, b = view["instances"]
    assert (a["id"], b["id"], a["models"], a["role"], a["reserved"]) == ("a", "b", ["m"], "neutral", None)
    assert a["status"]["num_total_gpu_tokens"] > 0
    assert a["block_size"] == 16
    assert a["address"]["llumlet_port"] > 0
    assert {request["id"] for each in (a, b) for request in each["requests"]} <= {f"r{n}" for n in range(STREAMS)}
