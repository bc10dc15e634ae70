"""A real Prometheus scrapes a gateway and runs every query of the dashboard and the alerts."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.traced_gateway import ask, backend
from tests.system.docs.test_observability import FOLDER, queries

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.timeout(120)]

WITHOUT_DATA = (
    "enginehouse_queue_depth",
    "enginehouse_gpu_",
    "enginehouse_hedges",
    "enginehouse_retries_refused",
    "enginehouse_continuation",
    "enginehouse_rescheduling",
    "enginehouse_worker",
    "enginehouse_mirror",
    "enginehouse_limit",
    "enginehouse_cost",
    "enginehouse_batch",
    "enginehouse_caches_kept",
    "enginehouse_energy",
    'status=~"5.."',
)
"""What a few requests do not bring about."""


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    """A gateway with an engine that is gone, one that fails at first, another one, and two models that swap."""
    with SimEngine("m") as failing, SimEngine("m") as other:
        config = (
            '[backends.gone]\nurl = "http://127.0.0.1:9"\nmodels = ["m"]\n'
            + backend("failing", failing, "m")
            + backend("other", other, "m", more="priority = 9")
            + "".join(f'[models.{name}]\ndriver = "sim"\nargs = ["--ttft", "0", "--tpot", "0"]\n' for name in "xy")
        )
        with RunningGateway(config) as gateway:
            gateway.until_health(gone="unhealthy", failing="healthy", other="healthy")
            failing.fault("error", status=503, count=2)
            yield gateway


@pytest.fixture(scope="module")
def prometheus(gateway: RunningGateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that has the configuration of the example, and scrapes every second."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("no prometheus is in PATH")
    folder = tmp_path_factory.mktemp("prometheus")
    config = (FOLDER / "prometheus.yml").read_text("utf-8").replace("127.0.0.1:8080", gateway.url[len("http://") :])
    (folder / "prometheus.yml").write_text(config.replace("scrape_interval: 5s", "scrape_interval: 1s"), "utf-8")
    shutil.copy(FOLDER / "alerts.yml", folder)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    yield from run(program, folder, address)


def run(program: str, folder: Path, address: str) -> Iterator[str]:
    told = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, *told, f"--web.listen-address={address}"], stderr=log)
    try:
        while not is_ready(f"http://{address}"):
            assert process.poll() is None, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(20)


def test_the_first_failures_are_seen(gateway: RunningGateway, prometheus: str) -> None:
    def increase(query: str) -> float:
        found = result(prometheus, f"sum(increase({query}[5m]))")
        return float(found[0]["value"][1]) if found else -1.0

    refused = 'enginehouse_refused_total{code="model_not_found"}'
    end = time.monotonic() + 60
    while increase(refused) < 0:  # the counters have been scraped twice
        assert time.monotonic() < end
        time.sleep(0.2)
    for _ in range(3):
        ask(gateway, "unknown")
    while increase(refused) <= 0:
        assert time.monotonic() < end
        time.sleep(0.2)


def test_every_query_runs_and_those_of_what_happened_have_data(gateway: RunningGateway, prometheus: str) -> None:
    asked = [as_asked(query) for query, _ in queries()]
    no_data = (*WITHOUT_DATA, " > ", " == ")  # alerts compare
    with_data = [query for query in asked if not any(part in query for part in no_data)]
    end = time.monotonic() + 90
    while missing := [*failed_scrapes(prometheus), *(query for query in with_data if not result(prometheus, query))]:
        assert time.monotonic() < end, missing
        for model in ("m", "x", "y"):
            ask(gateway, model, stream=True)
            ask(gateway, model)
        ask(gateway, "unknown")
    assert all(isinstance(result(prometheus, query), list) for query in asked)


def as_asked(query: str) -> str:
    """A query with the variables of the dashboard as they are at first."""
    return re.sub(r"\$(model|backend|key)", ".*", query.replace("$__rate_interval", "1m"))


def test_promtool_has_nothing_to_say_of_the_page(gateway: RunningGateway) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("no promtool is in PATH: Debian's package prometheus has it")
    page = plain_httpx.get(f"{gateway.url}/metrics").content
    told = subprocess.run([program, "check", "metrics"], input=page, capture_output=True, check=False)
    assert (told.returncode, told.stdout, told.stderr) == (0, b"", b"")


def failed_scrapes(prometheus: str) -> list[str]:
    """What has not been scraped, and why: the gateway's metrics, or its engines'."""
    targets = answer(prometheus, "targets", {})["activeTargets"]
    failed = [target["lastError"] for target in targets if target["health"] != "up"]
    return [*failed, *({"enginehouse", "engines"} - {target["labels"]["job"] for target in targets})]


def result(prometheus: str, query: str) -> Any:
    return answer(prometheus, "query", {"query": query})["result"]


def answer(prometheus: str, path: str, parameters: dict[str, str]) -> Any:
    found = plain_httpx.get(f"{prometheus}/api/v1/{path}", params=parameters).json()
    assert found["status"] == "success", found
    return found["data"]


def is_ready(prometheus: str) -> bool:
    try:
        return plain_httpx.get(f"{prometheus}/-/ready").status_code == 200
    except httpx.TransportError:
        return False
