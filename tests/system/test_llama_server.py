"""A real engine behind the gateway: llama-server with a tiny model, launched by it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from enginehouse import Driver
from enginehouse_kit.gateway import RunningGateway
from enginehouse_kit.testing import check_driver
from enginehouse_llamacpp import LlamaCppDriver
from enginehouse_openai import OpenAIDriver
from tests.support.engine_runs import (
    drains,
    embeds,
    embeds_again_after_a_kill,
    shows_metrics,
    stops_for_a_client_that_leaves,
)
from tests.support.openai_clients import openai_client
from tests.support.plain_httpx import get, post
from tests.support.real_gateways import llama_server, llama_table, ready_gateway

pytestmark = pytest.mark.engine

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello world"}]


@pytest.fixture(scope="module")
def gateway() -> Iterator[RunningGateway]:
    engine = llama_server()
    config = f"""
{llama_table("tiny:1m", engine, context_length="2048", preload="true")}
{llama_table("vectors", engine, options='{ embedding = true, pooling = "mean" }')}
{llama_table("ranks", engine, options="{ reranking = true }")}
[scheduling]
swapper = "memory"

[routing.aliases]
"gpt-4" = "tiny:1m"
"""
    with ready_gateway(engine, config, "tiny:1m") as gateway:
        yield gateway


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with openai_client(gateway.url) as client:
        yield client


def test_a_chat_is_answered(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="gpt-4", messages=HELLO, max_tokens=8, temperature=0)
    answer = raw.parse()

    assert answer.choices[0].message.content
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 8
    assert raw.headers["x-enginehouse-backend"] == "tiny:1m"
    assert raw.headers["x-enginehouse-reason"] == "alias"


def test_a_stream_says_the_same_as_the_whole_answer(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny:1m", messages=HELLO, max_tokens=16, temperature=0)
    chunks = list(
        client.chat.completions.create(model="tiny:1m", messages=HELLO, max_tokens=16, temperature=0, stream=True)
    )

    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content
    assert sum(1 for piece in pieces if piece) > 1
    assert chunks[-1].choices[0].finish_reason == "length"


def test_the_model_is_listed_with_its_context(client: openai.OpenAI) -> None:
    assert client.models.retrieve("tiny:1m").model_dump()["max_model_len"] == 2048


def test_a_conversation_that_does_not_fit_is_refused_before_the_engine_sees_it(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="context_length"):
        client.chat.completions.create(model="tiny:1m", messages=[{"role": "user", "content": "word " * 2000}])


@pytest.mark.parametrize("driver", [LlamaCppDriver, OpenAIDriver])
def test_its_drivers_pass_the_check_on_it(driver: type[Driver], gateway: RunningGateway) -> None:
    check_driver(driver, f"{gateway.url}/upstream/tiny:1m", "tiny:1m")


def test_its_figures_are_on_the_gateways_page(gateway: RunningGateway) -> None:
    shows_metrics(gateway, "tiny:1m", "llamacpp:")


async def test_it_stops_for_a_client_that_leaves(gateway: RunningGateway) -> None:
    await stops_for_a_client_that_leaves(gateway, "tiny:1m", 1500)


async def test_it_drains(gateway: RunningGateway) -> None:
    await drains(gateway, "tiny:1m", "tiny:1m", 1000)


TEXT = {"content": "hello world"}
CHAT = {"messages": [{"role": "user", "content": "hello world"}], "max_tokens": 4}


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/completion", {"prompt": "hello", "n_predict": 4}, "content"),
        ("/tokenize", TEXT, "tokens"),
        ("/detokenize", {"tokens": [1408, 1496]}, "content"),
        ("/apply-template", CHAT, "prompt"),
        ("/v1/messages", CHAT, "content"),
        ("/v1/messages/count_tokens", CHAT, "input_tokens"),
        ("/v1/responses", {"input": "hello", "max_output_tokens": 4}, "output"),
    ],
)
def test_its_own_endpoints_are_at_the_gateways_address(
    gateway: RunningGateway, path: str, body: dict[str, Any], field: str
) -> None:
    answer = post(f"{gateway.url}{path}", json={"model": "tiny:1m", **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()[field]


def test_it_says_itself_that_the_model_cannot_infill(gateway: RunningGateway) -> None:
    body = {"model": "tiny:1m", "input_prefix": "a", "input_suffix": "b", "n_predict": 4}
    answer = post(f"{gateway.url}/infill", json=body)
    assert (answer.status_code, "Infill is not supported" in answer.text) == (501, True), answer.text


@pytest.mark.parametrize(("page", "field"), [("/props", "total_slots"), ("/slots", "n_ctx")])
def test_its_pages_are_at_the_gateways_address(gateway: RunningGateway, page: str, field: str) -> None:
    answer = get(f"{gateway.url}{page}?model=tiny:1m")
    assert answer.status_code == 200, answer.text
    assert f'"{field}"' in answer.text


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/reranking"])
def test_a_model_made_for_it_ranks(gateway: RunningGateway, path: str) -> None:
    body = {"model": "ranks", "query": "hello world", "documents": ["a story", "hello world"]}
    answer = post(f"{gateway.url}{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    assert sorted(each["index"] for each in answer.json()["results"]) == [0, 1]


def test_a_model_made_for_it_embeds(gateway: RunningGateway) -> None:
    embeds(gateway, "vectors")


def test_a_killed_engine_is_launched_again(gateway: RunningGateway) -> None:
    embeds(gateway, "vectors")
    embeds_again_after_a_kill(gateway, "vectors")


@pytest.mark.parametrize("how", ["?force=true", ""])
def test_an_unload_during_a_stream_ends_the_stream_and_then_the_engine(how: str) -> None:
    """A llama-server does not exit while it streams."""
    engine = llama_server()
    table = llama_table("tiny", engine, context_length="8192", stop_timeout='"10m"', preload="true")
    with ready_gateway(engine, f'[server]\ndrain_timeout = "100ms"\n{table}', "tiny") as gateway:
        with openai_client(gateway.url) as client:
            stream = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=8000, stream=True)
            assert next(iter(stream)).choices
            assert post(f"{gateway.url}/api/models/tiny/unload{how}", timeout=30).status_code == 200
            with pytest.raises(openai.APIError, match="an operator unloaded its model"):
                list(stream)
        assert get(f"{gateway.url}/running").json()["running"] == []
