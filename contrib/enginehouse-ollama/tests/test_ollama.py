from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from enginehouse_ollama import OllamaDriver
from enginehouse_ollama.pull import ollama
from fake_ollama import SIZE, FakeOllama

from enginehouse import Capabilities
from enginehouse.drivers import LoadedModel
from enginehouse.errors import LoadFailed, NotEnoughMemory
from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.testing import HttpEngineClient, check_driver

REAL = "ENGINEHOUSE_TEST_OLLAMA"
"""The address of a real server, which has at least one model."""
LLAMA, LLAVA, MINILM = "llama3.2:latest", "llava:7b", "all-minilm:latest"
CLOUD = "gpt-oss:120b-cloud"
MODELS = {LLAMA: ["completion", "tools"], LLAVA: ["completion", "vision"], MINILM: ["embedding"]}


def ask(url: str, question: str, *more: str) -> Any:
    """The driver's answer to ``question`` about the server at ``url``."""
    return asyncio.run(getattr(OllamaDriver(), question)(HttpEngineClient(url), *more))


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    with FakeOllama(MODELS) as server:
        yield server


def test_it_keeps_the_rules_of_a_driver() -> None:
    check_driver(OllamaDriver)


def test_pulled_models_are_listed_with_what_they_can_do(server: FakeOllama) -> None:
    url = server.url
    assert ask(url, "healthy")
    served = {model.name: model for model in ask(url, "models")}
    assert served[LLAMA].capabilities == Capabilities(vision=False, tools=True, embeddings=False)
    assert served[LLAVA].capabilities.vision
    assert served[MINILM].capabilities.embeddings
    assert served[LLAMA].memory == SIZE


def test_the_context_of_a_loaded_model_is_known(server: FakeOllama) -> None:
    url = server.url
    ask(url, "load", LLAMA)
    [llama] = [model for model in ask(url, "models") if model.name == LLAMA]
    assert llama.capabilities.context_length == 4096


@pytest.mark.parametrize("model", [LLAMA, MINILM])
def test_models_are_loaded_and_unloaded(server: FakeOllama, model: str) -> None:
    url = server.url
    assert list(ask(url, "loaded")) == []
    ask(url, "load", model)
    assert list(ask(url, "loaded")) == [LoadedModel(model, SIZE)]
    ask(url, "unload", model)
    assert list(ask(url, "loaded")) == []
    ask(url, "unload", model)  # nothing is left to do


def test_failures_tell_their_reason(server: FakeOllama) -> None:
    server.room = 0
    with pytest.raises(NotEnoughMemory, match="requires more system memory"):
        ask(server.url, "load", LLAMA)
    with pytest.raises(LoadFailed, match="model 'gone' not found"):
        ask(server.url, "load", "gone")


def test_a_gateway_loads_swaps_and_retries(server: FakeOllama) -> None:
    config = f"""
[checks]
interval = "100ms"
[scheduling]
swapper = "memory"
[hosts.ollama]
[backends.ollama]
driver = "ollama"
url = "{server.url}"
host = "ollama"
"""
    server.room = 1
    with RunningGateway(config) as gateway:
        gateway.until(lambda status: len(status["replicas"]) == 3)
        for model in (LLAMA, LLAVA):
            body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
            answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, trust_env=False, timeout=30)
            assert answer.status_code == 200, answer.text
            assert server.running == [model]
        assert server.loads == [LLAMA, LLAVA, LLAVA], "without room it is tried once more, with the other unloaded"


def test_a_model_of_another_server_needs_no_load_and_no_memory(server: FakeOllama) -> None:
    server.models = {**MODELS, CLOUD: ["completion", "tools"]}
    served = {model.name: model for model in ask(server.url, "models")}
    assert (served[CLOUD].proxied, served[CLOUD].memory) == (True, None)
    assert not served[LLAMA].proxied
    config = f"""
[checks]
interval = "100ms"
[hosts.ollama]
memory = "6GB"
[scheduling]
swapper = "memory"
[backends.ollama]
driver = "ollama"
url = "{server.url}"
host = "ollama"
"""
    with RunningGateway(config) as gateway:
        gateway.until(lambda status: len(status["replicas"]) == 4)
        for model in (CLOUD, LLAMA, CLOUD):
            body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
            answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, trust_env=False, timeout=30)
            assert answer.status_code == 200, answer.text
        assert (server.loads, server.running) == ([LLAMA], [LLAMA])
        states = {each["model"]: each["state"] for each in gateway.status()["replicas"]}
        assert (states[CLOUD], states[LLAMA], states[LLAVA]) == ("ready", "ready", "stopped")
        assert httpx.post(f"{gateway.url}/api/models/{CLOUD}/load", trust_env=False).status_code == 400


@pytest.mark.parametrize(
    ("name", "full"),
    [
        ("llama3", "llama3:latest"),
        ("llama3:8b", "llama3:8b"),
        ("registry:5000/me/llama3", "registry:5000/me/llama3:latest"),
    ],
)
def test_a_name_without_a_tag_means_latest(name: str, full: str) -> None:
    assert OllamaDriver().full_name(name) == full


def test_a_gateway_loads_and_unloads_a_model_that_is_configured_without_its_tag() -> None:
    with FakeOllama({"llama3:latest": MODELS[LLAMA], "other:latest": MODELS[LLAMA]}) as server:
        config = f"""
[checks]
interval = "100ms"
[hosts.ollama]
[backends.ollama]
driver = "ollama"
url = "{server.url}"
host = "ollama"
models = ["llama3"]
"""
        with RunningGateway(config) as gateway:
            gateway.until(lambda status: [each["replica"] for each in status["replicas"]] == ["llama3@ollama"])
            for path, running in (("load", ["llama3:latest"]), ("unload", [])):
                url = f"{gateway.url}/api/models/llama3/{path}"
                assert httpx.post(url, trust_env=False, timeout=30).status_code == 200
                assert server.running == running


def test_pulling_shows_the_progress(server: FakeOllama) -> None:
    done = CliRunner().invoke(ollama, ["pull", LLAMA, "--url", server.url])
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "pulling manifest",
        "pulling digestname 0 %",
        "pulling digestname 100 %",
        "verifying sha256 digest",
        "writing manifest",
        "removing any unused layers",
        "success",
    ]
    failed = CliRunner().invoke(ollama, ["pull", "nosuch", "--url", server.url])
    assert (failed.exit_code, failed.output) == (1, "Error: pull model manifest: file does not exist\n")


@pytest.mark.skipif(REAL not in os.environ, reason=f"{REAL} names no server")
def test_a_real_server() -> None:
    url = os.environ[REAL]
    check_driver(OllamaDriver, url, ask(url, "models")[0].name)
