from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest

from enginehouse_kit.engines import SimEngine
from enginehouse_sim.simulator.model.text import encode, text_of
from tests.support import plain_httpx as http

Post = Callable[..., Any]
PATH = "/v1/completions"


def texts(answer: Any) -> list[str]:
    return [choice["text"] for choice in answer["choices"]]


def test_texts_and_token_ids_are_the_same_one_or_many(post: Post) -> None:
    one, two = "the steam engine", "the river"
    by_text = texts(post(PATH, prompt=[one, two]))
    assert texts(post(PATH, prompt=[encode(one), encode(two)])) == by_text
    assert texts(post(PATH, prompt=encode(two))) == [by_text[1]]
    assert len(set(by_text)) == 2


def test_token_ids_of_prompt_and_answer_come_on_demand(post: Post) -> None:
    for choice in post(PATH, prompt=["one", "two"], max_tokens=3, return_token_ids=True)["choices"]:
        assert choice["prompt_token_ids"] == encode(["one", "two"][choice["index"]])
        assert text_of(choice["token_ids"]) == choice["text"]


def test_tokens_that_are_no_text_are_continued_all_the_same(post: Post) -> None:
    assert post(PATH, prompt=[0, 1, 255, 2**31 - 1], max_tokens=2)["usage"]["prompt_tokens"] == 4


@pytest.mark.parametrize("prompt", ["", [], [[]], [2**31], [-1], ["a", ""]])
def test_a_prompt_that_cannot_be_read_is_refused(post: Post, prompt: Any) -> None:
    assert post(PATH, 400, prompt=prompt)["error"]["type"] == "BadRequestError"
    assert texts(post(PATH, prompt="fine"))


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_have_the_shape_that_the_sdk_knows(client: openai.OpenAI, stream: bool) -> None:
    asked: dict[str, Any] = {"model": "tiny", "prompt": "one two", "max_tokens": 3, "logprobs": 2}
    answered = list(client.completions.create(**asked, stream=True)) if stream else [client.completions.create(**asked)]
    text = "".join(one.choices[0].text for one in answered)
    told = [one.choices[0].logprobs for one in answered if one.choices[0].logprobs is not None]
    tokens = [token for one in told for token in one.tokens or ()]
    offsets = [offset for one in told for offset in one.text_offset or ()]
    logprobs = [logprob for one in told for logprob in one.token_logprobs or ()]
    top = [each for one in told for each in one.top_logprobs or ()]
    assert tokens == [text_of([token]) for token in encode(text)]
    assert [text[offset:].startswith(token) for offset, token in zip(offsets, tokens, strict=True)] == [True] * 3
    for token, logprob, likely in zip(tokens, logprobs, top, strict=True):
        assert likely[token] == logprob
        assert len(likely) == 2


def test_a_stop_token_ends_the_answer(post: Post) -> None:
    whole = post(PATH, prompt="hello", max_tokens=9, return_token_ids=True)["choices"][0]["token_ids"]
    [cut] = post(PATH, prompt="hello", max_tokens=9, stop_token_ids=[whole[3]], return_token_ids=True)["choices"]
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", whole[3])
    assert cut["token_ids"] == whole[:4]
    assert cut["text"] == text_of(whole[:3])


def test_an_adapter_is_a_model_with_a_cache_of_its_own(engine: SimEngine, post: Post) -> None:
    plain = post(PATH, prompt="one two three four five", max_tokens=2)
    tuned = post(PATH, prompt="one two three four five", max_tokens=2, model="tuned")
    assert texts(tuned) == texts(plain)
    assert "prompt_tokens_details" not in tuned["usage"]
    listed = {model["id"]: model["parent"] for model in http.get(f"{engine.url}/v1/models").json()["data"]}
    assert listed == {"tiny": None, "tuned": "tiny"}


def test_kv_transfer_parameters_are_taken(post: Post) -> None:
    assert texts(post(PATH, prompt="x", kv_transfer_params={"do_remote_decode": True}))
