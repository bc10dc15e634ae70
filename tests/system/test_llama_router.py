"""A real llama-server in router mode, whose models the gateway loads and unloads."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.testing import check_driver
from enginehouse_llamacpp import LlamaCppRouterDriver
from tests.support.held_port import held_port
from tests.support.plain_httpx import get, post
from tests.support.real_gateways import llama_server

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a router with the models ``a``, ``b``, ``idle`` and ``broken``, none of them loaded."""
    engine = llama_server()
    folder = tmp_path_factory.mktemp("models")
    for name in ("a", "b", "idle"):
        shutil.copy(engine.model, folder / f"{name}.gguf")
    (folder / "broken.gguf").write_bytes(engine.model.read_bytes()[:100_000])
    own = ["--models-dir", str(folder), "--models-max", "0", "--no-models-autoload", "--offline", "--metrics"]
    with held_port() as port:
        shared = ["--host", "127.0.0.1", "--port", str(port), "-t", "1", "-c", "2048", "--no-warmup"]
        process = subprocess.Popen([engine.program, *own, *shared], stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            _until_up(f"http://127.0.0.1:{port}/health")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def _until_up(url: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if get(url).status_code == 200:
                return
        time.sleep(0.05)
    raise TimeoutError(url)


@pytest.fixture(scope="module")
def gateway(router: str) -> Iterator[RunningGateway]:
    config = f"""
[checks]
interval = "200ms"

[backends.router]
driver = "llamacpp_router"
url = "{router}"

[models.idle]
ttl = "500ms"
"""
    with RunningGateway(config) as gateway:
        gateway.until(lambda status: len(status["replicas"]) == 4)
        yield gateway


def ask(gateway: RunningGateway, model: str) -> tuple[int, str]:
    body = {"model": model, "prompt": "hello", "max_tokens": 4, "temperature": 0}
    answer = post(f"{gateway.url}/v1/completions", json=body, timeout=60)
    return answer.status_code, answer.text


def states(gateway: RunningGateway) -> dict[str, str]:
    return {each["model"]: each["state"] for each in gateway.status()["replicas"]}


def test_models_are_loaded_and_unloaded_in_turn(gateway: RunningGateway, router: str) -> None:
    texts = set()
    for model in "abab":
        status, text = ask(gateway, model)
        assert status == 200, text
        texts.add(text.partition('"index"')[0])
        loaded = [each["id"] for each in get(f"{router}/models").json()["data"] if each["status"]["value"] == "loaded"]
        assert loaded == [model]
        assert states(gateway)[model] == "ready"
    assert len(texts) == 1, "both files hold the same model"


def test_an_idle_model_is_unloaded(gateway: RunningGateway) -> None:
    assert ask(gateway, "idle")[0] == 200
    gateway.until(lambda _: states(gateway)["idle"] == "stopped", timeout=30)


def test_loaded_models_show_their_metrics(gateway: RunningGateway) -> None:
    """The router asks for a name: ``/metrics?model=a``."""
    assert ask(gateway, "a")[0] == 200
    page = get(f"{gateway.url}/metrics/engines").text
    assert 'llamacpp:requests_processing{backend="router",model="a"}' in page
    assert 'model="broken"' not in page


def test_a_model_that_cannot_be_loaded_says_so(gateway: RunningGateway) -> None:
    status, text = ask(gateway, "broken")
    assert status == 503
    assert "The router did not load 'broken': its process ended with status" in text


def test_what_its_owner_loads_by_hand_is_ready(gateway: RunningGateway, router: str) -> None:
    assert ask(gateway, "a")[0] == 200
    assert post(f"{router}/models/load", json={"model": "b"}).status_code == 200
    gateway.until(lambda _: states(gateway)["b"] == "ready", timeout=30)
    assert post(f"{router}/models/unload", json={"model": "b"}).status_code == 200
    gateway.until(lambda _: states(gateway)["b"] == "stopped", timeout=30)


def test_its_driver_passes_the_check_on_it(router: str) -> None:
    check_driver(LlamaCppRouterDriver, router, "a")


@pytest.mark.parametrize("path", LlamaCppRouterDriver.endpoints)
def test_it_answers_other_protocols_itself(gateway: RunningGateway, path: str) -> None:
    body = {"model": "a", "messages": [{"role": "user", "content": "hi"}], "input": "hi", "max_tokens": 16}
    answer = post(f"{gateway.url}{path}", json=body, timeout=60)
    assert (answer.status_code, answer.headers["x-enginehouse-protocol"]) == (200, "native")
