from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from enginehouse_kit.interceptors import Answer, AnswerFilter, Change, Event, InterceptedRequest, Interceptor, Refuse
from enginehouse_kit.testing import check_interceptor, create, installed_plugins

TYPES = ("answer_cache", "model_header", "stop_loops")


def request(headers: dict[str, str] | None = None, caller: str | None = None, **body: object) -> InterceptedRequest:
    raw = json.dumps({"model": "m", **body}).encode()
    return InterceptedRequest("/v1/chat/completions", "openai", "m", headers or {}, raw, caller)


def before(interceptor: Interceptor, asked: InterceptedRequest) -> object:
    return asyncio.run(interceptor.before(asked))


def filter_of(interceptor: Interceptor, asked: InterceptedRequest) -> AnswerFilter:
    made = interceptor.answer(asked)
    assert made is not None
    return made


def text(said: str) -> Event:
    return Event("text", 0, said, {"choices": [{"index": 0, "delta": {"content": said}}]})


FINISH = Event("finish", 0, "", {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})


def test_the_plugin_registers_its_interceptors() -> None:
    found = {(row.kind, row.type) for row in installed_plugins() if row.name == "interceptor-examples"}
    assert found == {("interceptor", each) for each in TYPES}


@pytest.mark.parametrize("type", TYPES)
def test_they_keep_the_rules_of_interceptors(type: str) -> None:
    check_interceptor(lambda: create("interceptor", type))


def test_a_header_names_the_model() -> None:
    interceptor = create("interceptor", "model_header")
    assert before(interceptor, request({"x-model": "big"}, n=1)) == Change({"model": "big", "n": 1})
    assert before(interceptor, request()) is None


def test_an_answer_is_kept_for_the_same_request_of_the_same_caller() -> None:
    interceptor = create("interceptor", "answer_cache", {"most": 1})
    answer: dict[str, Any] = {"choices": [{"message": {"content": "Hi"}}]}
    assert before(interceptor, request(a=1, b=2)) is None
    filter_of(interceptor, request(a=1, b=2)).whole(json.dumps(answer).encode())
    assert before(interceptor, request(b=2, a=1, stream=True)) == Answer(200, answer)
    assert before(interceptor, request(a=1, b=2, caller="ann")) is None
    filter_of(interceptor, request(a=2)).whole(b"{}")
    assert before(interceptor, request(a=1, b=2)) is None, "only one has room"


@pytest.mark.parametrize("whole", [True, False])
def test_a_stream_of_text_is_kept(whole: bool) -> None:
    interceptor = create("interceptor", "answer_cache")
    made = filter_of(interceptor, request(stream=True))
    for event in (text("He"), text("llo"), FINISH) if whole else (text("He"), Event("tool"), FINISH):
        assert made.event(event) is event
    assert made.end() is None
    said = before(interceptor, request())
    if not whole:
        assert said is None
        return
    assert isinstance(said, Answer)
    assert isinstance(said.body, dict)
    assert said.body["choices"][0]["message"]["content"] == "Hello"


def stopped(pieces: list[str]) -> bool:
    made = filter_of(create("interceptor", "stop_loops"), request(stream=True))
    return any(isinstance(made.event(text(piece)), Refuse) for piece in pieces)


def test_a_loop_is_stopped() -> None:
    assert stopped(["I am sorry, but I cannot. "] * 100)
    assert stopped(list("So, as I said: " * 200))
    assert stopped(["a"] * 1500)


def test_other_texts_pass() -> None:
    assert not stopped([f"Line {number} of the table\n" for number in range(1000)])
    assert not stopped(["----------"] * 50), "a rule has not so many characters"
    assert not stopped(["I am sorry, but I cannot. "] * 9)
    assert not stopped([""] * 10)
