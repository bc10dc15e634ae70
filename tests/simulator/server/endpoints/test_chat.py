from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from enginehouse_kit.engines import SimEngine
from enginehouse_sim.simulator.model.text import encode, text_of
from tests.support import plain_httpx as http

Post = Callable[..., Any]
CHAT = "/v1/chat/completions"
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello, engine"}]


def events(engine: SimEngine, path: str, **body: Any) -> list[Any]:
    answer = http.post(f"{engine.url}{path}", json={"model": "tiny", "stream": True, **body})
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_token_ids_come_with_the_text_on_demand(post: Post) -> None:
    answer = post(CHAT, messages=HELLO, max_tokens=5, return_token_ids=True)
    choice = answer["choices"][0]
    assert text_of(choice["token_ids"]) == choice["message"]["content"]
    assert answer["prompt_token_ids"] == encode("user\nHello, engine\nassistant\n")
    assert "token_ids" not in post(CHAT, messages=HELLO)["choices"][0]


def test_token_ids_come_with_a_stream(engine: SimEngine, post: Post) -> None:
    whole = post(CHAT, messages=HELLO, max_tokens=5, return_token_ids=True)
    first, *rest = events(engine, CHAT, messages=HELLO, max_tokens=5, return_token_ids=True)
    assert first["prompt_token_ids"] == whole["prompt_token_ids"]
    streamed = [token for event in rest for token in event["choices"][0]["token_ids"]]
    assert streamed == whole["choices"][0]["token_ids"]


def test_logprobs_have_the_shape_that_the_sdk_knows(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=4, logprobs=True, top_logprobs=3)
    told = answer.choices[0].logprobs
    assert told is not None
    assert told.content is not None
    assert "".join(token.token for token in told.content) == answer.choices[0].message.content
    for token in told.content:
        assert bytes(token.bytes or ()).decode() == token.token
        assert [top.logprob for top in token.top_logprobs] == sorted(
            (t.logprob for t in token.top_logprobs), reverse=True
        )
        assert (token.top_logprobs[0].token, token.top_logprobs[0].logprob) == (token.token, token.logprob)
        assert len({top.token for top in token.top_logprobs}) == 3
        assert sum(math.exp(top.logprob) for top in token.top_logprobs) < 1


def test_a_stream_has_the_same_logprobs(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, "max_tokens": 4, "logprobs": True}
    whole = client.chat.completions.create(**asked).choices[0].logprobs
    assert whole is not None
    assert whole.content is not None
    assert [token.top_logprobs for token in whole.content] == [[]] * 4
    streamed = [chunk.choices[0].logprobs for chunk in client.chat.completions.create(**asked, stream=True)]
    assert [token for one in streamed if one is not None for token in one.content or ()] == whole.content


def test_usage_can_come_with_every_chunk(engine: SimEngine) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    told = events(engine, CHAT, messages=HELLO, max_tokens=3, stream_options=options)
    assert [event["usage"]["completion_tokens"] for event in told][1:] == [1, 2, 3, 3]


def test_a_repeated_beginning_is_read_from_the_cache(post: Post) -> None:
    first, second = (post(CHAT, messages=HELLO, max_tokens=2)["usage"] for _ in range(2))
    assert "prompt_tokens_details" not in first
    assert second["prompt_tokens_details"] == {"cached_tokens": 8}  # two blocks of the prompt's ten tokens
    salted = post(CHAT, messages=HELLO, max_tokens=2, cache_salt="mine")["usage"]
    assert "prompt_tokens_details" not in salted


def test_an_answer_continues_the_last_message_without_a_generation_prompt(post: Post) -> None:
    whole = post(CHAT, messages=HELLO, max_tokens=6)["choices"][0]["message"]["content"]
    begun = text_of(encode(whole)[:2])
    rest = post(
        CHAT,
        messages=[*HELLO, {"role": "assistant", "content": begun}],
        max_tokens=4,
        continue_final_message=True,
        add_generation_prompt=False,
    )
    assert begun + rest["choices"][0]["message"]["content"] == whole


def test_it_cannot_both_go_on_and_begin_anew(post: Post) -> None:
    both = {"continue_final_message": True, "add_generation_prompt": True}
    refused = post(CHAT, 400, messages=HELLO, **both)
    assert "exclude each other" in refused["error"]["message"]


def test_a_stop_string_is_named_and_can_be_shown(post: Post) -> None:
    whole = post(CHAT, messages=HELLO)["choices"][0]["message"]["content"]
    word = whole.split()[3]
    cut = post(CHAT, messages=HELLO, stop=word)["choices"][0]
    shown = post(CHAT, messages=HELLO, stop=word, include_stop_str_in_output=True)["choices"][0]
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", word)
    assert cut["message"]["content"] == whole[: whole.index(word)]
    assert shown["message"]["content"] == whole[: whole.index(word) + len(word)]
    late = post(CHAT, messages=HELLO, stop=word, min_tokens=6)["choices"][0]
    assert (late["finish_reason"], late["stop_reason"]) == ("length", None)


def test_min_tokens_cannot_be_more_than_max_tokens(post: Post) -> None:
    assert "min_tokens is 3" in post(CHAT, 400, messages=HELLO, min_tokens=3, max_tokens=2)["error"]["message"]


def test_an_image_takes_its_tokens_and_the_same_one_is_cached(post: Post) -> None:
    def asked(url: str) -> Any:
        parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What is it?"}]
        return post(CHAT, messages=[{"role": "user", "content": parts}], max_tokens=2)["usage"]

    first, other, again = asked("data:a"), asked("data:b"), asked("data:a")
    assert first["prompt_tokens"] > 64
    assert "prompt_tokens_details" not in other
    assert again["prompt_tokens_details"]["cached_tokens"] > 60


def test_the_request_gives_the_answer_its_name(engine: SimEngine) -> None:
    body = {"model": "tiny", "messages": HELLO}
    answers = [
        http.post(f"{engine.url}{CHAT}", json=body, headers=headers).json()["id"]
        for headers in ({"x-request-id": "abc"}, {}, {})
    ]
    assert answers[0] == "chatcmpl-abc"
    assert answers[1] != answers[2]


def test_answers_that_end_by_themselves_get_all_the_room() -> None:
    with SimEngine("tiny", mean_length=30, context_length=300) as engine:

        def ask(number: int, **more: Any) -> Any:
            messages = [{"role": "user", "content": f"Question {number}"}]
            body = {"model": "tiny", "messages": messages, "return_token_ids": True, **more}
            return http.post(f"{engine.url}{CHAT}", json=body).json()["choices"][0]

        choices = [ask(number) for number in range(20)]
        ended = [choice for choice in choices if choice["finish_reason"] == "stop"]
        assert len(ended) > 15
        assert max(len(choice["token_ids"]) for choice in ended) > 16
        for choice in ended:
            assert text_of(choice["token_ids"]) == choice["message"]["content"]
        cut = ask(choices.index(ended[0]), ignore_eos=True)
        assert (cut["finish_reason"], len(cut["token_ids"])) == ("length", 16)


@pytest.mark.parametrize("wrong", [{"n": 0}, {"top_logprobs": 21}, {"priority": "high"}, {"cache_salt": ""}])
def test_a_parameter_that_makes_no_sense_is_refused(post: Post, wrong: dict[str, Any]) -> None:
    assert post(CHAT, 400, messages=HELLO, **wrong)["error"]["type"] == "BadRequestError"
