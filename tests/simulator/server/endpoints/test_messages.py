from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from enginehouse.testing.engines import SimEngine
from tests.support import plain_httpx as http

Post = Callable[..., Any]
PAGE = "/v1/messages"
HELLO = [{"role": "user", "content": "Hello, engine"}]


def events(engine: SimEngine, **body: Any) -> list[dict[str, Any]]:
    answer = http.post(f"{engine.url}{PAGE}", json={"model": "tiny", "messages": HELLO, "stream": True, **body})
    parts = [event.split("\n") for event in answer.text.strip().split("\n\n")]
    made = [json.loads(data.removeprefix("data: ")) for _, data in parts]
    assert [name for name, _ in parts] == [f"event: {event['type']}" for event in made]
    return made


def test_a_message_is_the_text_of_the_chat(post: Post) -> None:
    message = post(PAGE, messages=HELLO, max_tokens=5)
    chat = post("/v1/chat/completions", messages=HELLO, max_tokens=5)
    assert message["content"] == [{"type": "text", "text": chat["choices"][0]["message"]["content"]}]
    assert (message["stop_reason"], message["stop_sequence"]) == ("max_tokens", None)
    counted = message["usage"]
    assert counted["input_tokens"] + counted["cache_read_input_tokens"] == chat["usage"]["prompt_tokens"]
    assert counted["output_tokens"] == 5


def test_a_stream_is_the_same_message_in_events(post: Post, engine: SimEngine) -> None:
    whole = post(PAGE, messages=HELLO, max_tokens=5)
    made = events(engine, max_tokens=5)
    kinds = [event["type"] for event in made]
    assert kinds == [
        *("message_start", "content_block_start"),
        *["content_block_delta"] * 5,
        *("content_block_stop", "message_delta", "message_stop"),
    ]
    text = "".join(event["delta"]["text"] for event in made if event["type"] == "content_block_delta")
    assert text == whole["content"][0]["text"]
    assert made[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert made[-2]["usage"] == {"output_tokens": 5}


def test_a_stop_sequence_ends_a_message(post: Post) -> None:
    words = post(PAGE, messages=HELLO, max_tokens=5)["content"][0]["text"].split()
    message = post(PAGE, messages=HELLO, max_tokens=5, stop_sequences=[words[2]])
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", words[2])
    assert message["content"][0]["text"].split() == words[:2]


def test_the_last_turn_of_the_assistant_is_continued(post: Post) -> None:
    whole = post(PAGE, messages=HELLO, max_tokens=8)["content"][0]["text"]
    cut = whole.index(" ", 8)
    begun = [*HELLO, {"role": "assistant", "content": whole[:cut]}]
    rest = post(PAGE, messages=begun, max_tokens=8)["content"][0]["text"]
    assert whole[:cut] + rest[: len(whole) - cut] == whole


def test_system_blocks_and_images_are_parts_of_the_prompt(post: Post) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    asked = [{"role": "user", "content": [{"type": "text", "text": "What?"}, image]}]
    count = post(f"{PAGE}/count_tokens", messages=asked, system="Be brief")["input_tokens"]
    assert count > 64
    counted = post(PAGE, messages=asked, system="Be brief", max_tokens=1)["usage"]
    assert counted["input_tokens"] + counted["cache_read_input_tokens"] == count


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"messages": HELLO}, 400, "invalid_request_error"),
        ({"messages": [], "max_tokens": 1}, 400, "invalid_request_error"),
        ({"messages": HELLO, "max_tokens": 1, "temperature": 2}, 400, "invalid_request_error"),
        ({"messages": HELLO, "max_tokens": 1, "model": "other"}, 404, "not_found_error"),
    ],
)
def test_an_error_has_anthropics_form(post: Post, body: dict[str, Any], status: int, kind: str) -> None:
    error = post(PAGE, status, **body)
    assert (error["type"], error["error"]["type"]) == ("error", kind)


def test_a_later_turn_may_be_the_systems(post: Post) -> None:
    turns = [*HELLO, {"role": "system", "content": [{"type": "text", "text": "Be quick"}]}]
    with_system = post(PAGE, messages=turns, max_tokens=3)
    assert with_system["usage"]["output_tokens"] == 3
    assert with_system["usage"]["input_tokens"] > post(PAGE, messages=HELLO, max_tokens=3)["usage"]["input_tokens"]


SCHEMA = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"], "additionalProperties": False}
TOOL = {"name": "get_weather", "input_schema": SCHEMA}


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_tool_that_must_be_called_is_called(post: Post, engine: SimEngine, choice: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"max_tokens": 300, "tools": [TOOL], "tool_choice": choice}
    answer = post(PAGE, messages=HELLO, **asked)
    [block] = answer["content"]
    assert (block["type"], block["name"], block["input"]) == ("tool_use", "get_weather", {"n": 7})
    assert (answer["stop_reason"], block["id"].startswith("toolu_")) == ("tool_use", True)
    made = events(engine, **asked)
    [started] = [each for each in made if each["type"] == "content_block_start"]
    assert started["content_block"]["type"] == "tool_use"
    pieces = [each["delta"]["partial_json"] for each in made if each["type"] == "content_block_delta"]
    assert json.loads("".join(pieces)) == {"n": 7}
    assert [each["delta"]["stop_reason"] for each in made if each["type"] == "message_delta"] == ["tool_use"]


@pytest.mark.parametrize("choice", [None, {"type": "auto"}, {"type": "none"}])
def test_a_tool_that_need_not_be_called_is_not(post: Post, choice: dict[str, Any] | None) -> None:
    answer = post(PAGE, messages=HELLO, max_tokens=5, tools=[TOOL], tool_choice=choice)
    assert [block["type"] for block in answer["content"]] == ["text"]


def test_an_unknown_tool_is_refused(engine: SimEngine) -> None:
    body = {"model": "tiny", "messages": HELLO, "max_tokens": 5, "tools": [TOOL]}
    answer = http.post(f"{engine.url}{PAGE}", json={**body, "tool_choice": {"type": "tool", "name": "other"}})
    assert (answer.status_code, "other" in answer.text) == (400, True)
