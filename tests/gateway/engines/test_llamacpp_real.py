"""The ``llamacpp`` driver and a real llama-server."""

from __future__ import annotations

import msgspec
import pytest

from enginehouse import Capabilities
from enginehouse.drivers import EngineClient, ServedModel
from enginehouse_llamacpp import LlamaCppDriver

pytestmark = pytest.mark.engine


async def test_a_real_llama_server_is_launched_healthy_and_known(llama_server: EngineClient) -> None:
    driver = LlamaCppDriver()
    assert await driver.healthy(llama_server)
    assert list(await driver.models(llama_server)) == [
        ServedModel("tiny", Capabilities(context_length=2048, vision=False, tools=True))
    ]


async def test_a_real_llama_server_answers_under_the_models_name(llama_server: EngineClient) -> None:
    question = {"model": "tiny", "prompt": "hello world", "max_tokens": 4, "temperature": 0}
    response = await llama_server.request("POST", "/v1/completions", msgspec.json.encode(question))
    answer = msgspec.json.decode(response.body)
    assert (response.status, answer["model"], answer["usage"]["completion_tokens"]) == (200, "tiny", 4)
