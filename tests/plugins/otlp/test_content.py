"""Prompts and answers as attributes of a span."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from enginehouse_otlp.process.content import answer_attributes, prompt_attributes

DONE = b"data: [DONE]\n\n"
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}
SHOWN_CALL = {"type": "tool_call", "id": "c1", "name": "look", "arguments": '{"at":1}'}


def prompt(body: object) -> dict[str, Any]:
    return {name: msgspec.json.decode(text) for name, text in prompt_attributes(msgspec.json.encode(body))}


def answer(body: bytes, stream: bool = False) -> Any:
    found = dict(answer_attributes(body, stream))
    return msgspec.json.decode(found["gen_ai.output.messages"]) if found else None


def events(*told: object) -> bytes:
    return b"".join(b"data: %s\n\n" % msgspec.json.encode(each) for each in told)


def text(content: str) -> dict[str, str]:
    return {"type": "text", "content": content}


def test_messages_of_a_chat_have_parts() -> None:
    image = {"type": "image_url", "image_url": {"url": "http://x/y"}}
    messages = [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "A tree"},
    ]
    assert prompt({"messages": messages})["gen_ai.input.messages"] == [
        {"role": "system", "parts": [text("Be brief")]},
        {"role": "user", "parts": [text("What is it?"), image]},
        {"role": "assistant", "parts": [SHOWN_CALL]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "A tree"}]},
    ]


def test_instructions_stand_apart_where_the_api_has_them_apart() -> None:
    used = {"type": "tool_use", "id": "t", "name": "look", "input": {"at": 1}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "A tree"}
    body = {"system": "Be brief", "messages": [{"role": "assistant", "content": [used]}, {"content": [result]}]}
    assert prompt(body) == {
        "gen_ai.system_instructions": [text("Be brief")],
        "gen_ai.input.messages": [
            {"role": "assistant", "parts": [{"type": "tool_call", "id": "t", "name": "look", "arguments": {"at": 1}}]},
            {"role": "user", "parts": [{"type": "tool_call_response", "id": "t", "response": "A tree"}]},
        ],
    }
    assert prompt({"instructions": "Be brief", "input": "Hello"}) == {
        "gen_ai.system_instructions": [text("Be brief")],
        "gen_ai.input.messages": [{"role": "user", "parts": [text("Hello")]}],
    }


def test_a_prompt_is_a_message() -> None:
    assert prompt({"prompt": "Hello"}) == {"gen_ai.input.messages": [{"role": "user", "parts": [text("Hello")]}]}
    assert len(prompt({"input": ["a", "b"]})["gen_ai.input.messages"]) == 2
    assert prompt({"model": "m"}) == prompt([]) == {}


@pytest.mark.parametrize(
    "body",
    [
        {"choices": [{"message": {"role": "assistant", "content": "A tree"}, "finish_reason": "stop"}]},
        {"choices": [{"text": "A tree", "finish_reason": "stop"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "A tree"}], "stop_reason": "stop"},
        {"output": [{"type": "message", "content": [{"type": "output_text", "text": "A tree"}]}], "status": "stop"},
    ],
)
def test_the_answer_of_each_api_is_a_message(body: object) -> None:
    shown = {"role": "assistant", "parts": [text("A tree")], "finish_reason": "stop"}
    assert answer(msgspec.json.encode(body)) == [shown]


def test_an_answer_of_which_a_part_is_kept_and_one_without_messages_show_none() -> None:
    assert answer(b'{"choices": [{"mess') is None
    assert answer(b'{"data": [{"embedding": [1.0]}]}') is None


@pytest.mark.parametrize(
    "told",
    [
        [{"choices": [{"delta": {"content": "A"}}]}, {"choices": [{"delta": {"content": " tree"}}]}],
        [{"choices": [{"text": "A"}]}, {"choices": [{"text": " tree"}]}, {"choices": []}],
        [{"type": "content_block_delta", "delta": {"text": "A"}}, {"delta": {"text": " tree"}}],
        [{"type": "response.output_text.delta", "delta": "A"}, {"delta": " tree"}, {"type": "response.completed"}],
    ],
)
def test_a_stream_of_each_api_is_a_message(told: list[object]) -> None:
    broken_off = {"role": "assistant", "parts": [text("A tree")], "finish_reason": "error"}
    assert answer(events(*told) + b"data: {cut", stream=True) == [broken_off]


def test_a_stream_has_a_message_for_each_choice_with_its_thoughts_its_calls_and_its_end() -> None:
    halves = (
        {"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"at"'}},
        {
            "index": 0,
            "function": {"arguments": ":1}"},
        },
    )
    stream = events(
        {"choices": [{"index": 1, "delta": {"content": "A bush"}, "finish_reason": "length"}]},
        {"choices": [{"index": 0, "delta": {"reasoning_content": "Hm"}}]},
        *({"choices": [{"index": 0, "delta": {"tool_calls": [half]}}]} for half in halves),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    )
    thought = {"type": "reasoning", "content": "Hm"}
    assert answer(stream + DONE, stream=True) == [
        {"role": "assistant", "parts": [thought, SHOWN_CALL], "finish_reason": "tool_calls"},
        {"role": "assistant", "parts": [text("A bush")], "finish_reason": "length"},
    ]


def test_an_event_that_is_nested_too_deeply_is_left_out() -> None:
    nested = b'data: {"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n"
    told = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}
    [message] = answer(nested + events(told) + DONE, stream=True)
    assert message["parts"] == [text("Hello")]
