"""The example plugin, pip-installed as a third party's would be, decides where requests of a running gateway go."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from enginehouse.testing.engines import SimEngine
from enginehouse.testing.gateway import RunningGateway

Ask = Callable[..., httpx.Response]
Engines = dict[str, SimEngine]
Serve = Callable[[str], RunningGateway]

EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin-nightshift"


@pytest.fixture(scope="module")
def site(pip_install: Callable[[Path], Path]) -> Path:
    return pip_install(EXAMPLE)


@pytest.fixture
def serve(site: Path, three_engines: Engines) -> Serve:
    """A gateway that has the plugin, in front of the three engines, with this in its configuration."""
    backends = "".join(
        f'[backends.{name}]\ndriver = "sim"\nurl = "{engine.url}"\nmodels = ["shared"]\n'
        for name, engine in three_engines.items()
    )
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return lambda text: RunningGateway(backends + text, {"PYTHONPATH": path})


@pytest.fixture
def healthy() -> dict[str, str]:
    return dict.fromkeys("abc", "healthy")


def test_its_filter_keeps_backends_out(
    serve: Serve, engines: Engines, healthy: dict[str, str], ask: Ask, http: httpx.Client
) -> None:
    text = '[routing]\nstrategy = "round_robin"\n[plugins.backend_names]\ndrop = ["a"]\n'
    with serve(text) as gateway:
        gateway.until_health(**healthy)
        answers = [ask(gateway, "shared") for _ in range(4)]
        explained = http.post(f"{gateway.url}/api/explain/route", json={"model": "shared"}).json()

    assert [answer.headers["x-enginehouse-backend"] for answer in answers] == ["b", "c", "b", "c"]
    assert explained["candidates"][0]["dropped_by"] == "backend_names"
    assert explained["candidates"][0]["why"] == "backend 'a' matches 'a' in drop"


def test_its_scorer_decides(
    serve: Serve, engines: Engines, healthy: dict[str, str], ask: Ask, http: httpx.Client
) -> None:
    text = '[routing]\nstrategy = "weighted"\n[[routing.scorers]]\ntype = "backend_preference"\n'
    with serve(text + 'parameters = { prefer = ["c", "b"] }\n') as gateway:
        gateway.until_health(**healthy)
        assert {ask(gateway, "shared").headers["x-enginehouse-backend"] for _ in range(4)} == {"c"}
        explained = http.post(f"{gateway.url}/api/explain/route", json={"model": "shared"}).json()

    assert [each["parts"]["backend_preference"] for each in explained["candidates"]] == [0, 50, 100]


def test_its_strategy_fills_one_backend_before_the_next(
    serve: Serve, engines: Engines, healthy: dict[str, str], ask: Ask
) -> None:
    text = '[routing]\nstrategy = "packed"\n[plugins.packed]\nlimit = 2\n'
    with serve(text) as gateway:
        gateway.until_health(**healthy)
        for engine in engines.values():
            engine.fault("hang")
        threads = [threading.Thread(target=ask, args=(gateway, "shared")) for _ in range(5)]
        pending = []
        for number, thread in enumerate(threads, 1):
            thread.start()
            status = gateway.until(lambda status, sent=number: status["requests"] == sent)  # type: ignore[misc]
            pending.append([backend["pending"] for backend in status["backends"]])
        for engine in engines.values():
            engine.clear()
        for thread in threads:
            thread.join()

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
def page(install: Callable[..., None], tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway with a plugin that adds a page."""
    install("page", PAGE)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with RunningGateway("", {"PYTHONPATH": path}) as gateway:
        yield gateway


def test_a_plugins_pages_are_served_beside_ours(page: RunningGateway, http: httpx.Client) -> None:
    assert http.get(f"{page.url}/hello").text == "hello from a plugin"
    assert http.get(f"{page.url}/health").json() == {"status": "ok"}
