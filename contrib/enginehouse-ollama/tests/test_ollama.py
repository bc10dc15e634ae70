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
from fake_ollama import GIB, FakeOllama

from enginehouse import Capabilities, LoadedModel, LoadFailed, NotEnoughMemory
from enginehouse.testing import HttpEngineClient, check_driver
from enginehouse.testing.gateway import RunningGateway

REAL = "ENGINEHOUSE_TEST_OLLAMA"
"""The address of a real server, which has at least one model."""


def ask(url: str, question: str, *more: str) -> Any:
    """What the driver says about the server at ``url``."""
    return asyncio.run(getattr(OllamaDriver(), question)(HttpEngineClient(url), *more))


@pytest.fixture
def server() -> Iterator[FakeOllama]:
    with FakeOllama(llama=["completion", "tools"], llava=["completion", "vision"], nomic=["embedding"]) as server:
        yield server


def test_it_keeps_the_rules_of_a_driver() -> None:
    check_driver(OllamaDriver)


def test_pulled_models_are_listed_with_what_they_can_do(server: FakeOllama) -> None:
    url = server.url
    assert ask(url, "healthy")
    served = {model.name: model for model in ask(url, "models")}
    assert served["llama"].capabilities == Capabilities(vision=False, tools=True, embeddings=False)
    assert served["llava"].capabilities.vision
    assert served["nomic"].capabilities.embeddings
    assert served["llama"].memory == 5 * GIB


def test_the_context_of_a_loaded_model_is_known(server: FakeOllama) -> None:
    url = server.url
    ask(url, "load", "llama")
    [llama] = [model for model in ask(url, "models") if model.name == "llama"]
    assert llama.capabilities.context_length == 4096


@pytest.mark.parametrize("model", ["llama", "nomic"])
def test_models_are_loaded_and_unloaded(server: FakeOllama, model: str) -> None:
    url = server.url
    assert list(ask(url, "loaded")) == []
    ask(url, "load", model)
    assert list(ask(url, "loaded")) == [LoadedModel(model, 5 * GIB)]
    ask(url, "unload", model)
    assert list(ask(url, "loaded")) == []
    ask(url, "unload", model)  # nothing is left to do


def test_failures_tell_their_reason(server: FakeOllama) -> None:
    server.room = 0
    with pytest.raises(NotEnoughMemory, match="requires more system memory"):
        ask(server.url, "load", "llama")
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
        for model in ("llama", "llava"):
            body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
            answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, trust_env=False, timeout=30)
            assert answer.status_code == 200, answer.text
            assert server.running == [model]
        assert server.loads == ["llama", "llava", "llava"], (
            "without room it is tried once more, with the other unloaded"
        )


def test_pulling_shows_the_progress(server: FakeOllama) -> None:
    done = CliRunner().invoke(ollama, ["pull", "llama", "--url", server.url])
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "pulling manifest",
        "pulling 6a0746a1ec1a 0 %",
        "pulling 6a0746a1ec1a 100 %",
        "verifying sha256 digest",
        "success",
    ]
    failed = CliRunner().invoke(ollama, ["pull", "nosuch", "--url", server.url])
    assert (failed.exit_code, failed.output) == (1, "Error: pull model manifest: file does not exist\n")


@pytest.mark.skipif(REAL not in os.environ, reason=f"{REAL} names no server")
def test_a_real_server() -> None:
    url = os.environ[REAL]
    check_driver(OllamaDriver, url, ask(url, "models")[0].name)
