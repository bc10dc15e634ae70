"""OpenAI's SDK reads streams that begin with progress."""

from __future__ import annotations

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.openai_clients import openai_client
from tests.support.operated_gateway import Serve

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
CONFIG = """
[scheduling]
progress = "{progress}"
progress_patience = "{patience}"

[models.slow]
driver = "sim"
args = ["--start-delay", "700ms", "--ttft", "1ms", "--tpot", "1ms"]

[models.broken]
driver = "sim"
command = "sh -c 'sleep 0.7; exit 3' ${{port}}"
"""


@pytest.fixture
def gateway(serve: Serve, progress: str, patience: str) -> RunningGateway:
    return serve(CONFIG.format(progress=progress, patience=patience)).process


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with openai_client(gateway.url) as client:
        yield client


@pytest.mark.parametrize(("progress", "patience"), [("comments", "0"), ("reasoning", "0")])
def test_the_sdk_reads_the_answer_after_the_progress(client: openai.OpenAI, progress: str) -> None:
    with client.chat.completions.stream(model="slow", messages=HELLO, max_tokens=3) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
        whole = stream.current_completion_snapshot
    told = [text for chunk in chunks for c in chunk.choices if (text := getattr(c.delta, "reasoning_content", None))]
    assert all(text.startswith("slow: loading, ") for text in told)
    assert bool(told) is (progress == "reasoning")
    assert whole.choices[0].message.content == "".join(c.delta.content or "" for e in chunks for c in e.choices)
    assert whole.choices[0].message.content
    assert whole.choices[0].message.role == "assistant"
    assert whole.choices[0].finish_reason == "length"


@pytest.mark.parametrize(("progress", "patience"), [("reasoning", "0")])
def test_a_completion_gets_comments(client: openai.OpenAI, gateway: RunningGateway) -> None:
    texts = [chunk.choices[0].text for chunk in client.completions.create(model="slow", prompt="x", stream=True)]
    assert "".join(texts)
    assert "loading" not in "".join(texts)


@pytest.mark.parametrize(("progress", "patience"), [("comments", "0"), ("reasoning", "0")])
def test_the_sdk_raises_a_failure_after_the_progress(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIError, match="did not start") as caught:
        list(client.chat.completions.create(model="broken", messages=HELLO, stream=True))
    assert not isinstance(caught.value, openai.APIStatusError)
    assert caught.value.code == "load_failed"


@pytest.mark.parametrize(("progress", "patience"), [("comments", "30s")])
def test_a_failure_before_the_progress_has_its_status(client: openai.OpenAI) -> None:
    with pytest.raises(openai.InternalServerError, match="did not start") as caught:
        list(client.chat.completions.create(model="broken", messages=HELLO, stream=True))
    assert caught.value.status_code == 503


@pytest.mark.parametrize(("progress", "patience"), [("comments", "0")])
def test_a_raw_stream_shows_the_comments(gateway: RunningGateway) -> None:
    body = {"model": "slow", "messages": HELLO, "stream": True, "max_tokens": 1}
    answer = plain_httpx.post(f"{gateway.url}/v1/chat/completions", json=body)
    assert answer.text.startswith(": loading, ")
    assert (
        ": x-enginehouse-backend: slow\n: x-enginehouse-model: slow\n: x-enginehouse-reason: match\n\n" in answer.text
    )
    assert answer.text.endswith("data: [DONE]\n\n")
