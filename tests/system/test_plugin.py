"""The example plugin, pip-installed as a third party's would be, decides where requests of a running gateway go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.pytest_plugin import StartGateway
from tests.support.operated_gateway import OperatedGateway, Serve
from tests.support.paths import EXAMPLES
from tests.support.plugins import Install, PipInstall

Engines = dict[str, SimEngine]

EXAMPLE = EXAMPLES / "plugin-nightshift"


@pytest.fixture(scope="module")
def site(pip_install: PipInstall) -> Path:
    return pip_install(EXAMPLE)


@pytest.fixture(scope="module")
def process(site: Path) -> Iterator[RunningGateway]:
    """A gateway that has the plugin."""
    with RunningGateway("", in_path(site)) as gateway:
        yield gateway


@pytest.fixture
def serve(process: RunningGateway, engines: Engines, pool: ThreadPoolExecutor) -> Iterator[Serve]:
    """Have it serve in front of the three engines, with this in the configuration."""
    backends = "".join(
        f'[backends.{name}]\ndriver = "sim"\nurl = "{engine.url}"\nmodels = ["shared"]\n'
        for name, engine in engines.items()
    )
    with OperatedGateway(process, pool) as gateway:

        def reconfigure(config: str) -> OperatedGateway:
            gateway.reconfigure(backends + config)
            gateway.until_health(a="healthy", b="healthy", c="healthy")
            return gateway

        yield reconfigure
        gateway.reconfigure("")


def in_path(folder: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])}


def test_its_filter_keeps_backends_out(serve: Serve) -> None:
    gateway = serve('[routing]\nstrategy = "round_robin"\n[plugins.backend_names]\ndrop = ["a"]\n')
    assert [gateway.went_to("shared") for _ in range(4)] == ["b", "c", "b", "c"]
    explained = gateway.http.post("/api/explain/route", json={"model": "shared"}).json()
    assert explained["candidates"][0]["dropped_by"] == "backend_names"
    assert explained["candidates"][0]["why"] == "backend 'a' matches 'a' in drop"


def test_its_scorer_decides(serve: Serve) -> None:
    text = '[routing]\nstrategy = "weighted"\n[[routing.scorers]]\ntype = "backend_preference"\n'
    gateway = serve(text + 'parameters = { prefer = ["c", "b"] }\n')
    assert {gateway.went_to("shared") for _ in range(4)} == {"c"}
    explained = gateway.http.post("/api/explain/route", json={"model": "shared"}).json()
    assert [each["parts"]["backend_preference"] for each in explained["candidates"]] == [0, 50, 100]


def test_its_strategy_fills_one_backend_before_the_next(serve: Serve, engines: Engines) -> None:
    gateway = serve('[routing]\nstrategy = "packed"\n[plugins.packed]\nlimit = 2\n')
    for engine in engines.values():
        engine.fault("hang")
    answers = []
    pending = []
    for number in range(1, 6):
        answers.append(gateway.asking("shared"))
        gateway.until_asked(number)
        pending.append([backend["pending"] for backend in gateway.process.status()["backends"]])
    for engine in engines.values():
        engine.clear()
    assert {answer.result().status_code for answer in answers} == {200}
    assert pending == [[1, 0, 0], [2, 0, 0], [2, 1, 0], [2, 2, 0], [2, 2, 1]]


PAGE = """
from starlette.responses import PlainTextResponse
from starlette.routing import Route

async def hello(request):
    return PlainTextResponse("hello from a plugin")

@hookimpl
def register_routes(register):
    register("hello", lambda: [Route("/hello", hello)])
"""


@pytest.fixture
def page(install: Install, tmp_path: Path, enginehouse_gateway: StartGateway) -> RunningGateway:
    """A gateway with a plugin that adds a page."""
    install("page", PAGE)
    return enginehouse_gateway("", in_path(tmp_path))


def test_a_plugins_pages_are_served_beside_ours(page: RunningGateway, http: httpx.Client) -> None:
    assert http.get(f"{page.url}/hello").text == "hello from a plugin"
    assert http.get(f"{page.url}/health").json() == {"status": "ok"}
