"""OpenAI's SDK asks for responses, in front of engines that speak only chats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support.openai_clients import openai_client

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": True,
}


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with openai_client(gateway.url) as client:
        yield client


def test_a_response_and_its_stream_say_the_same(client: openai.OpenAI) -> None:
    whole = client.responses.create(model="m", input="Hello", instructions="Be brief", max_output_tokens=8)
    with client.responses.create(
        model="m", input="Hello", instructions="Be brief", max_output_tokens=8, stream=True
    ) as events:
        seen = list(events)
    last: Any = seen[-1]
    assert last.type == "response.incomplete"
    assert last.response.output_text == whole.output_text
    assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == whole.output_text
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert whole.usage is not None
    assert (whole.status, whole.usage.output_tokens) == ("incomplete", 8)


def test_the_tokens_of_a_prompt_are_those_that_a_response_has(client: openai.OpenAI) -> None:
    counted = client.responses.input_tokens.count(model="m", input="Hello", instructions="Be brief", tools=[WEATHER])
    whole = client.responses.create(
        model="m", input="Hello", instructions="Be brief", tools=[WEATHER], max_output_tokens=1
    )
    assert whole.usage is not None
    assert counted.input_tokens == whole.usage.input_tokens


def test_functions_are_called_and_their_results_go_back(client: openai.OpenAI) -> None:
    with client.responses.stream(model="m", input="Hello", tools=[WEATHER], tool_choice="required") as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_response().output
    assert call.type == "function_call"
    assert call.name == "weather"
    turns: Any = [
        {"role": "user", "content": "Hello"},
        {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
        {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"},
    ]
    assert client.responses.create(model="m", input=turns, tools=[WEATHER], max_output_tokens=4).output_text


def test_what_the_gateway_does_not_keep_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
        client.responses.create(model="m", input="Hello", previous_response_id="resp_1")
    with pytest.raises(openai.BadRequestError, match="Only OpenAI runs the tool"):
        client.responses.create(model="m", input="Hello", tools=[{"type": "web_search"}])


def test_a_kept_response_is_continued(engines: tuple[SimEngine, SimEngine]) -> None:
    backend = f'[backends.one]\ndriver = "openai"\nurl = "{engines[0].url}"\nmodels = ["m"]\n'
    with (
        RunningGateway(f'{backend}[plugins.responses]\nstored = "1MiB"\n') as gateway,
        openai_client(gateway.url) as client,
    ):
        gateway.until_health(one="healthy")
        first = client.responses.create(model="m", input="Hello", max_output_tokens=8)
        with client.responses.stream(
            model="m", input="Go on", previous_response_id=first.id, max_output_tokens=8
        ) as stream:
            *_, last = stream
        second: Any = last.response  # type: ignore[union-attr]
        said = [{"role": "assistant", "content": first.output_text}, {"role": "user", "content": "Go on"}]
        whole: Any = [{"role": "user", "content": "Hello"}, *said]
        same: Any = client.responses.create(model="m", input=whole, max_output_tokens=8, store=False)
        assert second.output_text == same.output_text
        assert (second.previous_response_id, second.store, same.store) == (first.id, True, False)
        assert client.responses.retrieve(second.id).output_text == second.output_text
        client.responses.delete(first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(first.id)
        with pytest.raises(openai.BadRequestError, match=r"any more.*whole conversation"):
            client.responses.create(model="m", input="Go on", previous_response_id=first.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(same.id)
