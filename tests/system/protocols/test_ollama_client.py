"""Ollama's own client, in front of engines that speak only OpenAI's protocol."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ollama
import pytest

from enginehouse_kit.gateway import RunningGateway

HELLO = [{"role": "user", "content": "Hello, engine"}]
SIX: Any = {"num_predict": 6}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "tells the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[ollama.Client]:
    client = ollama.Client(host=gateway.url)
    yield client
    client._client.close()


def test_a_chat_and_its_stream_say_the_same(client: ollama.Client) -> None:
    whole = client.chat(model="m", messages=HELLO, options=SIX)
    pieces = list(client.chat(model="m", messages=HELLO, options=SIX, stream=True))
    assert "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert (whole.done_reason, whole.eval_count, whole.prompt_eval_count) == ("length", 6, pieces[-1].prompt_eval_count)
    assert [piece.done for piece in pieces] == [False] * 6 + [True]


def test_a_name_may_have_the_tag_that_clients_add(client: ollama.Client) -> None:
    assert client.chat(model="m:latest", messages=HELLO, options=SIX).model == "m:latest"


def test_a_prompt_is_a_chat_of_one_message_and_an_empty_one_loads(client: ollama.Client) -> None:
    chat = client.chat(model="m", messages=HELLO, options=SIX).message.content
    assert client.generate(model="m", prompt=HELLO[0]["content"], options=SIX).response == chat
    assert client.generate(model="m", prompt="The", raw=True, options=SIX).eval_count == 6
    assert client.generate(model="m").done_reason == "load"


def test_embeddings(client: ollama.Client) -> None:
    one, other = client.embed(model="m", input=["a", "b"]).embeddings
    assert len(one) == len(other) > 1
    assert list(client.embeddings(model="m", prompt="a").embedding) == list(one)


def test_lists_of_models(client: ollama.Client) -> None:
    assert [model.model for model in client.list().models] == ["m"]
    assert [model.model for model in client.ps().models] == ["m"]
    assert (client.show("m:latest").modelinfo or {})["llama.context_length"]
    with pytest.raises(ollama.ResponseError, match="Model 'none' not found"):
        client.show("none")


def test_tools_are_told_when_they_are_whole(client: ollama.Client) -> None:
    schema = WEATHER["function"]["parameters"]
    answer = client.chat(model="m", messages=HELLO, format=schema).message.content
    assert answer is not None
    assert "city" in answer
    call: Any = {"function": {"name": "weather", "arguments": {"city": "Rome"}}}
    turns: Any = [*HELLO, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "sunny"}]
    assert client.chat(model="m", messages=turns, tools=[WEATHER], options=SIX).eval_count == 6


def test_errors_are_ollamas(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError, match="Model 'none' not found") as caught:
        client.chat(model="none", messages=HELLO)
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError) as streamed:
        list(client.chat(model="none", messages=HELLO, stream=True))
    assert streamed.value.status_code == 404


def test_keep_alive_is_the_time_that_a_model_stays_loaded() -> None:
    with RunningGateway('[models.m]\ndriver = "sim"\nttl = "1h"\n') as gateway:
        client = ollama.Client(host=gateway.url)
        assert client.chat(model="m", messages=HELLO, options=SIX).eval_count == 6
        assert [model.model for model in client.ps().models] == ["m"]
        assert client.generate(model="m", keep_alive=0).done_reason == "unload"
        gateway.until(lambda status: status["replicas"][0]["state"] == "stopped")
        client._client.close()
