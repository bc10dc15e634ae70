from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel, ConfigDict

Post = Callable[..., Any]
CHAT = "/v1/chat/completions"
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello, engine"}]


class Wagon(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["goods", "passenger"]
    axles: int
    notes: list[str]
    next: Wagon | None = None


SCHEMA = Wagon.model_json_schema()
LOOK: ChatCompletionToolParam = {"type": "function", "function": {"name": "couple", "parameters": SCHEMA}}
STOP: ChatCompletionToolParam = {"type": "function", "function": {"name": "halt", "parameters": {"type": "object"}}}


def content(answer: Any) -> Any:
    assert answer["choices"][0]["finish_reason"] == "stop"
    return json.loads(answer["choices"][0]["message"]["content"])


def test_json_mode_answers_with_a_whole_object(post: Post) -> None:
    for asked in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        assert isinstance(content(post(CHAT, messages=HELLO, **asked)), dict)


def test_the_sdk_parses_what_follows_a_schema(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(model="tiny", messages=HELLO, response_format=Wagon)
    assert isinstance(answer.choices[0].message.parsed, Wagon)


def test_all_ways_to_ask_for_a_schema_are_the_same(post: Post) -> None:
    formats: list[dict[str, Any]] = [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "wagon", "schema": SCHEMA}}},
        {"structured_outputs": {"json": SCHEMA}},
        {"structured_outputs": {"json": json.dumps(SCHEMA, separators=(",", ":"))}},
    ]
    answers = [content(post(CHAT, messages=HELLO, **how)) for how in formats]
    assert answers == answers[:1] * 3
    Wagon.model_validate(answers[0])


def test_a_choice_can_be_asked_for(post: Post) -> None:
    answer = post(CHAT, messages=HELLO, structured_outputs={"choice": ["red", "green"]})
    assert answer["choices"][0]["message"]["content"] in ("red", "green")


def test_a_completion_can_follow_a_schema(post: Post) -> None:
    answer = post("/v1/completions", prompt="x", max_tokens=200, structured_outputs={"json": SCHEMA})
    assert Wagon.model_validate_json(answer["choices"][0]["text"])


@pytest.mark.parametrize(
    "asked",
    [
        {"structured_outputs": {"json": {"type": "string", "pattern": "x"}}},
        {"structured_outputs": {"json": "{"}},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "grammar"}},
        {"structured_outputs": {"regex": "[a-z]+"}},
        {"structured_outputs": {"choice": []}},
        {"structured_outputs": {"grammar": "root"}},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_grammar_that_is_not_understood_is_refused(post: Post, asked: dict[str, Any], stream: bool) -> None:
    assert post(CHAT, 400, messages=HELLO, stream=stream, **asked)["error"]["code"] == 400


def test_a_named_function_is_called_with_arguments_of_its_schema(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny",
        messages=HELLO,
        tools=[STOP, LOOK],
        tool_choice={"type": "function", "function": {"name": "couple"}},
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    [call] = calls
    assert call.type == "function"
    assert call.function.name == "couple"
    Wagon.model_validate_json(call.function.arguments)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (None, "stop")


def test_if_a_call_is_required_some_function_is_called_the_same_each_time(client: openai.OpenAI) -> None:
    called = set()
    for number in range(12):
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": f"Question {number}"}]
        answers = [
            client.chat.completions.create(model="tiny", messages=messages, tools=[STOP, LOOK], tool_choice="required")
            for _ in range(2)
        ]
        calls = [(answer.choices[0].message.tool_calls or [])[0] for answer in answers]
        assert calls[0].type == calls[1].type == "function"
        assert calls[0].function == calls[1].function
        assert calls[0].id != calls[1].id
        assert answers[0].choices[0].finish_reason == "tool_calls"
        called.add(calls[0].function.name)
    assert called == {"couple", "halt"}


def test_a_stream_of_a_call_is_put_together_by_the_sdk(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, "tools": [LOOK], "tool_choice": "required"}
    whole = (client.chat.completions.create(**asked).choices[0].message.tool_calls or [])[0]
    with client.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert whole.type == "function"
    assert calls is not None
    [call] = calls
    assert (call.function.name, call.function.arguments) == (whole.function.name, whole.function.arguments)
    assert final.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("choice", ["auto", "none", None])
def test_where_no_call_is_asked_for_the_answer_is_text(post: Post, choice: str | None) -> None:
    plain = post(CHAT, messages=HELLO)["choices"][0]["message"]
    assert post(CHAT, messages=HELLO, tools=[LOOK], tool_choice=choice)["choices"][0]["message"] == plain


def test_a_choice_of_no_tool_is_refused(post: Post) -> None:
    assert "no tools" in post(CHAT, 400, messages=HELLO, tool_choice="required")["error"]["message"]
    named = {"type": "function", "function": {"name": "fly"}}
    assert "'fly'" in post(CHAT, 400, messages=HELLO, tools=[LOOK], tool_choice=named)["error"]["message"]
