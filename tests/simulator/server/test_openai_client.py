from __future__ import annotations

import math

import openai
import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam

from enginehouse_kit.engines import SimEngine
from tests.support import plain_httpx as http
from tests.support.openai_clients import openai_client

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello, engine"}]


def test_chat_answers_with_text_and_usage(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=HELLO)
    ChatCompletion.model_validate(answer.model_dump())
    assert answer.choices[0].finish_reason == "length"
    assert len((answer.choices[0].message.content or "").split()) == 16
    assert answer.usage == CompletionUsage(prompt_tokens=10, completion_tokens=16, total_tokens=26)


def test_a_chat_stream_is_the_same_text_in_chunks(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=HELLO, max_completion_tokens=5)
    chunks = list(
        client.chat.completions.create(
            model="tiny", messages=HELLO, max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
    )
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump())
    *said, last = chunks
    assert said[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in said) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in said] == [None] * 5 + ["length"]
    assert (last.choices, last.usage) == ([], whole.usage)
    assert all(chunk.usage is None for chunk in said)
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_ends_with_done_and_has_no_usage_unasked(engine: SimEngine) -> None:
    body = {"model": "tiny", "prompt": "x", "max_tokens": 2, "stream": True}
    answer = http.post(f"{engine.url}/v1/completions", json=body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[2:] == ["data: [DONE]", ""]
    assert "usage" not in answer.text


def test_an_answer_cut_anywhere_can_be_continued_exactly(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=10).choices[0].message.content or ""
    so_far = whole[: whole.index(" ", 12)]
    rest = client.chat.completions.create(
        model="tiny-too",
        messages=[*HELLO, {"role": "assistant", "content": so_far}],
        max_tokens=10 - len(so_far.split()),
        extra_body={"continue_final_message": True, "add_generation_prompt": False},
    )
    assert so_far + (rest.choices[0].message.content or "") == whole


def test_completions_continue_each_prompt_n_times(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=["one", "two"], n=2, max_tokens=3)
    texts = [choice.text for choice in answer.choices]
    assert len(set(texts)) == 4
    again = client.completions.create(model="tiny", prompt="two", n=2, max_tokens=3, stream=True)
    streamed = {0: "", 1: ""}
    for chunk in again:
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert [streamed[0], streamed[1]] == texts[2:]


def test_stop_strings_end_the_answer(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="tiny", prompt="hello").choices[0].text
    cut = client.completions.create(model="tiny", prompt="hello", stop=["bolt"])
    assert (cut.choices[0].text, cut.choices[0].finish_reason) == (whole[: whole.index("bolt")], "stop")
    chunks = list(client.completions.create(model="tiny", prompt="hello", stop="bolt", stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == cut.choices[0].text
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_embeddings_are_unit_vectors_that_depend_on_the_text(client: openai.OpenAI) -> None:
    answer = client.embeddings.create(model="tiny", input=["a", "b", "a"], dimensions=8)
    one, other, again = (item.embedding for item in answer.data)
    assert one == again != other
    assert math.hypot(*one) == pytest.approx(1)
    assert answer.usage.prompt_tokens == 3
    plain = client.embeddings.create(model="tiny", input="a", dimensions=8, encoding_format="float")
    assert plain.data[0].embedding == pytest.approx(one)


def test_models_are_listed_with_what_is_known_of_them(client: openai.OpenAI) -> None:
    first, second = client.models.list().data
    assert (first.id, second.id) == ("tiny", "tiny-too")
    assert client.models.retrieve("tiny-too") == second
    extra = second.model_extra or {}
    assert (extra["max_model_len"], extra["vision"], extra["tools"]) == (200, True, False)
    assert "json_mode" not in extra


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    for ask in (
        lambda: client.chat.completions.create(model="nobody", messages=HELLO),
        lambda: client.embeddings.create(model="nobody", input="x"),
        lambda: client.models.retrieve("nobody"),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            ask()
        assert caught.value.type == "NotFoundError"
        assert "nobody" in caught.value.message


@pytest.mark.parametrize(("words", "max_tokens"), [(201, None), (150, 100)])
def test_what_does_not_fit_into_the_context_is_refused(
    client: openai.OpenAI, words: int, max_tokens: int | None
) -> None:
    with pytest.raises(openai.BadRequestError, match="maximum context length is 200 tokens") as caught:
        client.completions.create(model="tiny", prompt=" x" * words, max_tokens=max_tokens)
    assert caught.value.body == {
        "message": caught.value.body["message"],  # type: ignore[index]
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 3}', b'{"model": "tiny", "messages": "hi"}'])
def test_a_body_of_the_wrong_shape_is_refused(engine: SimEngine, body: bytes) -> None:
    answer = http.post(f"{engine.url}/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "BadRequestError"


def test_the_same_seed_makes_the_same_text_in_another_process(client: openai.OpenAI) -> None:
    expected = client.completions.create(model="tiny", prompt="hello").choices[0].text
    for seed, same in ((0, True), (1, False)):
        with (
            SimEngine("another", seed=seed) as other,
            openai_client(other.url) as second,
        ):
            text = second.completions.create(model="another", prompt="hello").choices[0].text
        assert (text == expected) is same
