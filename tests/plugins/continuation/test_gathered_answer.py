"""One answer, made of the events of a stream."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from enginehouse_continuation.gathered_answer import GatheredAnswer
from enginehouse_kit.testing import FakeShare


def gathered(*chunks: object) -> dict[str, Any]:
    answer = GatheredAnswer(FakeShare())
    for chunk in chunks:
        answer.add(b"data: " + json.dumps(chunk).encode() + b"\n\n")
    answer.add(b": a comment\n\ndata: [DONE]\n\n")
    found: dict[str, Any] = json.loads(answer.body())
    return found


def chat(delta: object, finish: str | None = None, **more: object) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, **more}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice]}


def test_a_chat_becomes_a_message() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    assert gathered(
        chat({"role": "assistant", "content": ""}),
        chat({"reasoning_content": "Hm"}),
        chat({"reasoning_content": "m"}),
        chat({"content": "Hel"}),
        chat({"content": "lo"}),
        chat({}, "stop", stop_reason=13),
        {**chat({}), "choices": [], "usage": usage},
    ) == {
        "id": "c1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "reasoning_content": "Hmm"},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": 13,
            }
        ],
        "usage": usage,
    }


def test_a_completion_stays_one() -> None:
    chunks = [{"object": "text_completion", "choices": [{"index": 0, "text": text}]} for text in ("Hel", "lo")]
    assert gathered(*chunks) == {"object": "text_completion", "choices": [{"index": 0, "text": "Hello"}]}


def test_token_ids_are_joined_and_the_last_facts_stay() -> None:
    ids = [
        {"choices": [{"index": 0, "text": "a", "token_ids": [number]}], "timings": {"n": number}} for number in (1, 2)
    ]
    assert gathered(*ids) == {"choices": [{"index": 0, "text": "aa", "token_ids": [1, 2]}], "timings": {"n": 2}}


@pytest.mark.parametrize("choices", [None, {}, "text", 7, [None], ["text"], [{"index": "x"}], [{"index": None}]])
def test_nonsense_breaks_nothing(choices: object) -> None:
    assert gathered({"choices": choices}, {"choices": [{"text": "a"}]})["choices"] == [{"text": "a"}]


def test_an_error_event_is_the_answer() -> None:
    answer = GatheredAnswer(FakeShare())
    answer.add(b'event: error\ndata: {"error": {"code": "upstream_error"}}\n\n')
    answer.body()
    assert answer.error == {"error": {"code": "upstream_error"}}


async def test_long_answers_are_read_in_pieces() -> None:
    answer = GatheredAnswer(FakeShare())
    event = b"data: " + json.dumps(chat({"content": "word "})).encode() + b"\n\n"
    for _ in range(1000):
        answer.add(event)
        await asyncio.sleep(0)
        assert answer._size <= 8 * 1024
    assert json.loads(answer.body())["choices"][0]["message"]["content"] == "word " * 1000
