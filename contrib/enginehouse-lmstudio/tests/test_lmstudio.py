from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from enginehouse_lmstudio import LMStudioDriver
from fake_lmstudio import FakeLMStudio

from enginehouse import Capabilities
from enginehouse.drivers import LoadedModel
from enginehouse.errors import LoadFailed, NotEnoughMemory
from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.testing import HttpEngineClient, check_driver

REAL = "ENGINEHOUSE_TEST_LMSTUDIO"
"""The address of a real server, which has at least one model."""


def ask(url: str, question: str, *more: str) -> Any:
    """The driver's answer to ``question`` about the server at ``url``."""
    return asyncio.run(getattr(LMStudioDriver(), question)(HttpEngineClient(url), *more))


@pytest.fixture
def server() -> Iterator[FakeLMStudio]:
    with FakeLMStudio(qwen="llm", gemma="llm", nomic="embedding") as server:
        yield server


@pytest.fixture
def other() -> Iterator[FakeLMStudio]:
    with FakeLMStudio(gemma="llm") as server:
        yield server


def test_it_keeps_the_rules_of_a_driver() -> None:
    check_driver(LMStudioDriver)


def test_models_are_listed_with_what_they_can_do(server: FakeLMStudio) -> None:
    served = {model.name: model for model in ask(server.url, "models")}
    assert served["qwen"].capabilities == Capabilities(
        context_length=131072, vision=False, tools=True, embeddings=False
    )
    assert served["nomic"].capabilities.embeddings
    assert served["qwen"].memory == 5_000_000_000


def test_models_are_loaded_and_unloaded(server: FakeLMStudio) -> None:
    url = server.url
    assert ask(url, "healthy")
    assert list(ask(url, "loaded")) == []
    ask(url, "load", "qwen")
    ask(url, "load", "qwen")  # a second instance
    assert list(ask(url, "loaded")) == [LoadedModel("qwen")]
    [qwen] = [model for model in ask(url, "models") if model.name == "qwen"]
    assert qwen.capabilities.context_length == 8192
    ask(url, "unload", "qwen")
    assert server.running() == []


def test_failures_tell_their_reason(server: FakeLMStudio) -> None:
    server.room = 0
    with pytest.raises(NotEnoughMemory, match="insufficient system resources"):
        ask(server.url, "load", "qwen")
    with pytest.raises(LoadFailed, match="Model 'gone' not found"):
        ask(server.url, "load", "gone")


def test_servers_load_side_by_side_and_what_is_ready_does_not_wait(server: FakeLMStudio, other: FakeLMStudio) -> None:
    tables = "".join(
        f'[hosts.{name}]\n[backends.{name}]\ndriver = "lmstudio"\nurl = "{each.url}"\nhost = "{name}"\n'
        for name, each in (("one", server), ("two", other))
    )
    config = f'[checks]\ninterval = "100ms"\n[scheduling]\nswapper = "memory"\n{tables}'
    with RunningGateway(config) as gateway, ThreadPoolExecutor() as pool:

        def ask(model: str) -> int:
            body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
            url = f"{gateway.url}/v1/chat/completions"
            return httpx.post(url, json=body, trust_env=False, timeout=60).status_code

        gateway.until(lambda status: len(status["replicas"]) == 4)
        other.instances["gemma"].append("gemma")
        gateway.until(lambda status: "ready" in {each["state"] for each in status["replicas"]})
        server.open.clear()
        waiting = [pool.submit(ask, "qwen") for _ in range(3)]
        gateway.until(lambda status: status["requests"] == 3)
        assert ask("gemma") == 200
        server.open.set()
        assert [answer.result() for answer in waiting] == [200, 200, 200]
        assert server.loads == ["qwen"]


@pytest.mark.skipif(REAL not in os.environ, reason=f"{REAL} names no server")
def test_a_real_server() -> None:
    url = os.environ[REAL]
    check_driver(LMStudioDriver, url, ask(url, "models")[0].name)
