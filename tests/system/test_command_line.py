"""Commands that talk to a running gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from click.testing import CliRunner, Result

from enginehouse.cli import enginehouse
from enginehouse.testing.engines import SimEngine
from enginehouse.testing.gateway import RunningGateway

WIDE = {"COLUMNS": "200"}


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    with SimEngine("llama3:8b", context_length=4096) as engine:
        config = f"""
[auth]
keys = [{{ name = "admin", key = "k-admin", admin = true }}, {{ name = "app", key = "k-app", models = ["gpt-*"] }}]
[backends."rack/gpu:1"]
driver = "sim"
url = "{engine.url}"
[backends.gone]
url = "http://127.0.0.1:9"
models = ["qwen"]
[routing.aliases]
"gpt-4" = "llama3:8b"
"""
        with RunningGateway(config, key="k-admin") as gateway:
            gateway.until_health(**{"rack/gpu:1": "healthy", "gone": "unhealthy"})
            yield gateway


@pytest.fixture
def run(gateway: RunningGateway) -> Callable[..., Result]:
    def invoke(*arguments: str, key: str = "k-admin") -> Result:
        environment = {**WIDE, "ENGINEHOUSE_URL": gateway.url, "ENGINEHOUSE_KEY": key}
        return CliRunner(env=environment).invoke(enginehouse, arguments)

    return invoke


def test_status_shows_the_gateway_and_its_backends(run: Callable[..., Result]) -> None:
    printed = run("status").stdout

    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines()]
    assert printed.startswith("Enginehouse 0.")
    assert "strategy smart, live requests: 0" in printed
    assert ["rack/gpu:1", "sim", "healthy", "0", "0 ms", "llama3:8b"] in rows
    assert ["gone", "openai", "unhealthy", "0", "0 ms", "qwen"] in rows
    assert printed.splitlines()[-1].startswith("gone is unhealthy: ")


def test_status_as_json_is_the_gateways_answer(run: Callable[..., Result], gateway: RunningGateway) -> None:
    status = json.loads(run("status", "--json").stdout)

    assert status.keys() == gateway.status().keys()
    assert status["backends"] == gateway.status()["backends"]


def test_models_shows_what_the_key_may_use(run: Callable[..., Result]) -> None:
    everything = json.loads(run("models", "--json").stdout)
    allowed = json.loads(run("models", "--json", key="k-app").stdout)

    assert [model["id"] for model in everything["data"]] == ["qwen", "llama3:8b", "gpt-4"]
    assert [model["id"] for model in allowed["data"]] == ["gpt-4"]
    assert "4096" in run("models").stdout


def test_a_drained_backend_gets_no_requests_until_it_is_undrained(
    run: Callable[..., Result], gateway: RunningGateway, http: httpx.Client
) -> None:
    def chat() -> int:
        body = {"model": "llama3:8b", "messages": [{"role": "user", "content": "Hello"}]}
        headers = {"authorization": "Bearer k-admin"}
        return http.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers).status_code

    assert run("drain", "rack/gpu:1").stdout == "rack/gpu:1 gets no new requests\n"
    assert chat() == 503
    assert "healthy, draining" in run("status").stdout
    assert run("undrain", "rack/gpu:1").stdout == "rack/gpu:1 gets requests again\n"
    assert chat() == 200


def test_an_unknown_backend_is_an_error_with_a_guess(run: Callable[..., Result]) -> None:
    assert "There is no backend 'gonne'; did you mean \"gone\"?" in str(run("drain", "gonne").exception)


@pytest.mark.parametrize(
    ("key", "problem"), [("k-wrong", "Unknown API key"), ("k-app", "Key 'app' is no admin key"), ("", "No API key")]
)
def test_an_insufficient_key_is_an_error_with_a_remedy(run: Callable[..., Result], key: str, problem: str) -> None:
    message = str(run("status", key=key).exception)

    assert problem in message
    assert "--key or $ENGINEHOUSE_KEY" in message
