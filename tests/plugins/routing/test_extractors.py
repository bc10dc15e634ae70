from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enginehouse import Requirements
from enginehouse_kit.testing import request
from enginehouse_routing.needs import (
    LONGEST_TOKENS,
    JsonModeExtractor,
    TokensExtractor,
    ToolsExtractor,
    VisionExtractor,
)


def needs(body: dict[str, Any]) -> Requirements:
    """The requirements, for which it makes no difference whether the extractors are joined."""
    requirements, joined = Requirements(model="m"), Requirements(model="m")
    first, *following = TokensExtractor(), VisionExtractor(), ToolsExtractor(), JsonModeExtractor()
    for extractor in (first, *following):
        extractor.extract(request(body), requirements)
    at_once = first.joined(following)
    assert at_once is not None
    at_once.extract(request(body), joined)
    assert joined == requirements
    return requirements


def message(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


def test_tokens_are_the_characters_of_all_messages_by_four() -> None:
    body = {"messages": [{"role": "system", "content": "12345"}, {"role": "user", "content": "123456"}]}
    assert needs(body).estimated_tokens == 11 // 4


def test_characters_are_counted_not_bytes() -> None:
    assert needs(message("日本語日本語日本")).estimated_tokens == 2


def test_of_multipart_content_only_text_is_counted() -> None:
    parts = [
        {"type": "text", "text": "12345678"},
        {"type": "image_url", "image_url": {"url": "data:" + "x" * 4000}},
        {"type": "image_url", "text": "not a text part" * 100},
        {"type": "input_text", "text": "1234"},
    ]
    assert needs(message(parts)).estimated_tokens == 3


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({}, 0),
        ({"messages": []}, 0),
        (message(None), 0),
        (message("123"), 0),
        ({"prompt": "12345678"}, 2),
        ({"prompt": [7, 8, 9]}, 3),
        ({"prompt": ["1234", "12345678"]}, 3),
        ({"prompt": [[7, 8, 9], [7]]}, 4),
        ({"input": "12345678"}, 2),
        ({"input": [{"role": "user", "content": "1234"}, {"content": [{"type": "input_text", "text": "5678"}]}]}, 2),
        ({"input": [{"type": "function_call_output", "output": "x"}, {"type": "input_text", "text": "12345678"}]}, 2),
        ({"system": "12345678", **message("1234")}, 3),
        ({"system": [{"type": "text", "text": "12345678"}]}, 2),
        ({"query": "1234", "documents": ["12345678", {"text": "1234"}, {"title": "no text"}, 5]}, 4),
        ({"query": "12345678"}, 2),
        ({"prompt": []}, 0),
        ({"input": ""}, 0),
    ],
)
def test_every_endpoints_text_is_counted(body: dict[str, Any], tokens: int) -> None:
    assert needs(body).estimated_tokens == tokens


@pytest.mark.parametrize(
    ("body", "longest"),
    [
        ({"input": ["1234", "12345678", ""]}, 2),
        ({"prompt": [[1, 2, 3], [4]]}, 3),
        ({"query": "1234", "documents": ["12345678", "1234"]}, 3),
    ],
)
def test_of_texts_served_one_by_one_the_longest_is_known(body: dict[str, Any], longest: int) -> None:
    assert needs(body).extra == {LONGEST_TOKENS: longest}


@pytest.mark.parametrize("body", [message("1234"), {"prompt": "1234"}, {"prompt": [1, 2]}, {"input": ["1234"]}])
def test_a_single_text_needs_no_such_note(body: dict[str, Any]) -> None:
    assert needs(body).extra == {}


@given(st.lists(st.text() | st.lists(st.text(), max_size=3), max_size=5))
def test_the_estimate_is_exact_for_any_conversation(contents: list[Any]) -> None:
    characters = sum(len(part) for content in contents for part in content)
    messages = [
        {"content": c if isinstance(c, str) else [{"type": "text", "text": text} for text in c]} for c in contents
    ]
    assert needs({"messages": messages}).estimated_tokens == characters // 4


@pytest.mark.parametrize("type", ["image_url", "input_image", "image"])
@pytest.mark.parametrize("field", ["messages", "input"])
def test_an_image_in_any_message_needs_vision(type: str, field: str) -> None:
    body = {field: [{"role": "user", "content": "look"}, {"content": [{"type": "text", "text": "at"}, {"type": type}]}]}
    assert needs(body).needs_vision


RESULT = [{"type": "text", "text": "12345678"}, {"type": "image", "source": {}}, "odd", {"type": 3, "text": 4}]


@pytest.mark.parametrize(
    ("body", "tokens", "shows_image"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "12345678"}]}]}, 2, False),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "content": RESULT}]}]}, 2, True),
        ({"messages": [{"content": [{"type": "web_search_tool_result", "content": {"error_code": "x"}}]}]}, 0, False),
        ({"input": [{"type": "function_call_output", "output": "12345678"}]}, 2, False),
        ({"input": [{"type": "function_call_output", "output": [{"type": "input_image"}, RESULT[0]]}]}, 2, True),
        ({"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot"}}]}, 0, False),
    ],
)
def test_what_tools_return_is_part_of_the_prompt(body: dict[str, Any], tokens: int, shows_image: bool) -> None:
    found = needs(body)
    assert (found.estimated_tokens, found.needs_vision) == (tokens, shows_image)


@pytest.mark.parametrize(
    "body",
    [
        {},
        message("image_url"),
        message([{"type": "text", "text": "image_url"}]),
        {"messages": [], "image_url": "x"},
        {"input": ["image_url"]},
        {"input": [1, 2]},
    ],
)
def test_talk_of_images_needs_no_vision(body: dict[str, Any]) -> None:
    assert not needs(body).needs_vision


@pytest.mark.parametrize(("tools", "needed"), [([{"type": "function"}], True), ([], False), (None, False)])
def test_tools_are_needed_if_there_are_any(tools: Any, needed: bool) -> None:
    assert needs({"tools": tools}).needs_tools is needed


@pytest.mark.parametrize(
    ("response_format", "needed"),
    [
        ({"type": "json_object"}, True),
        ({"type": "json_schema", "json_schema": {}}, True),
        ({"type": "text"}, False),
        (None, False),
    ],
)
def test_json_mode_is_needed_for_json(response_format: Any, needed: bool) -> None:
    assert needs({"response_format": response_format}).needs_json_mode is needed
    assert needs({"input": "hi", "text": {"format": response_format}}).needs_json_mode is needed


def test_instructions_of_a_response_count_as_text() -> None:
    assert needs({"input": "12345678", "instructions": "1234"}).estimated_tokens == 3


def test_a_plain_request_needs_nothing() -> None:
    assert needs(message("hi")) == Requirements(model="m")
