"""The interceptors for agents, each alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from enginehouse import ConfigError
from enginehouse_interceptors.asked import key_of
from enginehouse_interceptors.kept_answers import KeepingFilter, KeptAnswers
from enginehouse_interceptors.small_tasks import SmallTasks
from enginehouse_kit.interceptors import (
    Answer,
    AnswerFilter,
    Change,
    Event,
    InterceptedRequest,
    Interceptor,
    Join,
    Refuse,
)
from enginehouse_kit.testing import create


def request(
    name: str = "r1",
    caller: str | None = None,
    headers: dict[str, str] | None = None,
    path: str = "/v1/chat/completions",
    **body: object,
) -> InterceptedRequest:
    raw = json.dumps({"model": "m", **body}).encode()
    return InterceptedRequest(path, "openai", "m", {"x-request-id": name, **(headers or {})}, raw, caller)


def before(interceptor: Interceptor, asked: InterceptedRequest) -> Any:
    return asyncio.run(interceptor.before(asked))


def filter_of(interceptor: Interceptor, asked: InterceptedRequest) -> AnswerFilter:
    made = interceptor.answer(asked)
    assert made is not None
    return made


def event(kind: Any, text: str = "", choice: int = 0, **delta: object) -> Event:
    finish = "stop" if kind == "finish" else None
    content = {"content": text} if kind == "text" else {}
    choices = [{"index": choice, "delta": {**content, **delta}, "finish_reason": finish}]
    return Event(kind, choice, text, {"id": "x", "choices": choices})


def whole(interceptor: Interceptor, asked: InterceptedRequest, body: bytes, status: int = 200) -> None:
    made = filter_of(interceptor, asked)
    made.head(status, {"content-type": "application/json"})
    made.whole(body)


# --- answers


def test_an_answer_is_given_again() -> None:
    it = create("interceptor", "answers")
    asked = request(temperature=0, n=1)
    assert before(it, asked) is None
    whole(it, asked, b'{"a": 1}')
    assert before(it, request(n=1, temperature=0)) == Answer(200, b'{"a": 1}')
    for other in (request(temperature=0, n=2), request(caller="ann", temperature=0, n=1)):
        assert before(it, other) is None


def test_a_stream_is_given_again() -> None:
    it = create("interceptor", "answers")
    asked = request(seed=1, stream=True)
    made = filter_of(it, asked)
    made.head(200, {"content-type": "text/event-stream"})
    first, last = event("text", "Hi"), event("finish")
    assert [made.event(first), made.event(last)] == [first, last]
    made.end()
    said = before(it, asked)
    assert (said.status, said.content_type) == (200, "text/event-stream")
    assert said.body == b"".join(b"data: %s\n\n" % msgspec.json.encode(each.data) for each in (first, last)) + (
        b"data: [DONE]\n\n"
    )


@pytest.mark.parametrize("kinds", [(), ("usage",), ("other", "usage")])
def test_a_stream_that_says_nothing_is_not_kept(kinds: tuple[str, ...]) -> None:
    it = create("interceptor", "answers")
    asked = request(seed=1, stream=True)
    made = filter_of(it, asked)
    made.head(200, {"content-type": "text/event-stream"})
    for kind in kinds:
        made.event(event(kind))
    made.end()
    assert before(it, asked) is None


def test_what_might_be_another_answer_is_not_kept() -> None:
    it = create("interceptor", "answers", {"most_bytes": 1000})
    assert it.answer(request(temperature=0.7)) is None
    assert it.answer(request(path="/v1/embeddings", input="a")) is not None
    asked = request(temperature=0)
    whole(it, asked, b'{"error": 1}', 201)
    filter_of(it, asked).broken({"code": "x"})
    whole(it, asked, b"x" * 11)
    assert before(it, asked) is None


def test_kept_answers_have_an_end_and_a_bound() -> None:
    now = 0.0
    kept = KeptAnswers(10, 25, lambda: now)
    for key in (b"a", b"b"):
        kept.keep(key, Answer(200, key), 10)
    assert kept.find(b"a") is not None
    kept.keep(b"c", Answer(200, b"c"), 10)
    assert (kept.find(b"b"), kept.find(b"a") is not None) == (None, True), "the one that nobody asked for went"
    now = 11.0
    assert (kept.find(b"a"), kept.find(b"c")) == (None, None)


def test_what_is_collected_of_answers_has_a_bound_and_is_given_back() -> None:
    kept = KeptAnswers(10, 250)
    first, second = KeepingFilter(kept, b"a", 250), KeepingFilter(kept, b"b", 250)
    for each in (first, second):
        each.head(200, {"content-type": "text/event-stream"})
        each.event(event("text", "x" * 80))
    second.end()
    assert kept.find(b"b") is None, "there was no room for it"
    first.broken({"code": "client_left"})
    third = KeepingFilter(kept, b"c", 250)
    third.head(200, {"content-type": "text/event-stream"})
    third.event(event("text", "x" * 80))
    third.end()
    assert kept.find(b"c") is not None


@pytest.mark.parametrize(
    ("name", "value"), [("content-encoding", "gzip"), ("x-enginehouse-reason", "fallback"), ("server", "x")]
)
def test_an_answer_that_is_encoded_or_of_a_fallback_is_not_kept(name: str, value: str) -> None:
    it = create("interceptor", "answers")
    made = filter_of(it, request(temperature=0))
    made.head(200, {"content-type": "application/json", name: value})
    made.whole(b"{}")
    assert (before(it, request(temperature=0)) is None) == (name != "server")


# --- join_duplicates


def test_a_duplicate_joins_the_first_and_then_gets_its_answer() -> None:
    it = create("interceptor", "join_duplicates")
    assert before(it, request("r1", n=1)) is None
    made = filter_of(it, request("r1", n=1))
    made.head(200, {"content-type": "application/json"})
    assert before(it, request("r2", n=1)) == Join("r1")
    assert before(it, request("r3", n=2)) is None
    assert before(it, request("r4", caller="ann", n=1)) is None
    made.whole(b"{}")
    assert before(it, request("r5", n=1)) == Answer(200, b"{}")


def test_after_an_error_a_request_is_sent_again() -> None:
    it = create("interceptor", "join_duplicates")
    assert before(it, request("r1")) is None
    made = filter_of(it, request("r1"))
    made.broken({"code": "upstream_error"})
    assert before(it, request("r2")) is None


def test_a_request_that_was_refused_later_is_not_joined_for_ever() -> None:
    it = create("interceptor", "join_duplicates")
    assert before(it, request("r1")) is None
    assert before(it, request("r2")) == Join("r1"), "the gateway lets it go its own way"
    filter_of(it, request("r2"))
    assert before(it, request("r3")) == Join("r2")


def test_the_id_of_a_request_that_was_refused_leads_to_no_other_one() -> None:
    it = create("interceptor", "join_duplicates")
    assert before(it, request("same", n=1)) is None
    assert before(it, request("same", n=2)) is None
    filter_of(it, request("same", n=2))
    assert before(it, request("r3", n=1)) is None


def test_an_id_that_two_requests_have_is_not_joined() -> None:
    it = create("interceptor", "join_duplicates")
    first = filter_of(it, request("same", n=1))
    second = filter_of(it, request("same", caller="ann", n=2))
    assert before(it, request("r3", caller="ann", n=2)) is None, "this may be the first one's answer"
    assert before(it, request("r4", caller="ann", n=2)) == Join("r3")
    first.broken({"code": "client_left"})
    filter_of(it, request("same", n=3))
    assert before(it, request("r5", n=3)) is None, "the other one is still there"
    second.broken({"code": "client_left"})
    assert before(it, request("r6", n=3)) == Join("r5")


def test_an_idempotency_key_is_for_one_body() -> None:
    it = create("interceptor", "join_duplicates")
    headers = {"idempotency-key": "k"}
    assert before(it, request("r1", headers=headers, n=1)) is None
    filter_of(it, request("r1", headers=headers, n=1))
    assert before(it, request("r2", headers=headers, n=1)) == Join("r1")
    assert isinstance(before(it, request("r3", headers=headers, n=2)), Refuse)
    assert before(it, request("r4", caller="ann", headers=headers, n=2)) is None


# --- small_tasks

TITLES = (
    "### Task:\nGenerate a concise, 3-5 word title with an emoji summarizing the chat history.",
    "Provide a concise, 5-word-or-less title for the conversation",
    "Analyze if this message indicates a new conversation topic. If it does, extract a title",
    "You are a helpful assistant ... your job is to provide a short title for a task",
)


@pytest.mark.parametrize("prompt", TITLES)
def test_a_small_task_is_served_by_the_small_model(prompt: str) -> None:
    it = create("interceptor", "small_tasks", {"model": "small"})
    messages = [{"role": "user", "content": prompt}]
    said = before(it, request(messages=messages))
    assert said == Change({"model": "small", "messages": messages})
    assert before(it, request(messages=messages, tools=[{"type": "function"}])) is None
    assert before(create("interceptor", "small_tasks"), request(messages=messages)) is None


def test_own_patterns_and_a_header_mark_small_tasks() -> None:
    it = create("interceptor", "small_tasks", {"model": "small", "patterns": ["^Name this"], "header": "X-Small"})
    assert before(it, request(messages=[{"content": "Name this chat"}])) is not None
    assert before(it, request(messages=[{"content": "Hello"}])) is None
    assert before(it, request(headers={"x-small": "1"}, messages=[])) is not None


# --- loops


def ends(pieces: list[str], kind: Any = "text") -> bool:
    made = filter_of(create("interceptor", "loops"), request())
    return any(isinstance(made.event(event(kind, each)), Refuse) for each in pieces)


def test_loops_end() -> None:
    assert ends(["I am sorry, but I cannot. "] * 200)
    assert ends(list("As I said before: wait. " * 200), "thinking")
    assert ends([" \n"] * 3000)


def test_long_texts_do_not_end() -> None:
    assert not ends([f"| {n} | row |\n" for n in range(2000)])
    assert not ends(["A" * 100] * 100), "base64 has such runs"
    assert not ends(["I am sorry, but I cannot. "] * 9)


# --- tool_calls

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'


def calls_filter() -> AnswerFilter:
    it = create("interceptor", "tool_calls", {"models": ["m*"]})
    return filter_of(it, request(tools=[{"type": "function"}]))


def played(pieces: list[str]) -> list[Event]:
    made = calls_filter()
    found: list[Event] = []
    for each in (*[event("text", piece) for piece in pieces], event("finish")):
        said = made.event(each)
        found += [said] if isinstance(said, Event) else said  # type: ignore[arg-type]
    found += made.end()  # type: ignore[arg-type]
    return found


def text_of(events: list[Event]) -> str:
    return "".join(each.text for each in events if each.kind == "text")


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_a_call_that_leaked_becomes_a_call(size: int) -> None:
    said = f"Let me see. {CALL}{CALL.replace('f', 'g', 1)} <b>"
    events = played([said[at : at + size] for at in range(0, len(said), size)])
    assert text_of(events) == "Let me see.  <b>"
    calls = [each for each in events if each.kind == "tool"]
    assert [json.loads(each.text) for each in calls] == [{"a": 1}, {"a": 1}]
    functions = [each.data["choices"][0]["delta"]["tool_calls"][0] for each in calls]
    assert [each["index"] for each in functions] == [0, 1]
    assert functions[0]["function"]["name"] == "f"
    assert functions[0]["id"] != functions[1]["id"]
    [end] = [each for each in events if each.kind == "finish"]
    assert end.data["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize(
    "said", ["1 < 2 and [x] <tool", "<tool_call>no JSON</tool_call> and on", "<tool_call>{", "[TOOL_CALLS]", "<|"]
)
def test_what_is_no_call_passes_as_it_came(said: str, size: int) -> None:
    events = played([said[at : at + size] for at in range(0, len(said), size)])
    assert text_of(events) == said
    [end] = [each for each in events if each.kind == "finish"]
    assert end.data["choices"][0]["finish_reason"] == "stop"


def test_text_without_a_marker_is_not_touched() -> None:
    made = calls_filter()
    plain = event("text", "Hello")
    assert made.event(plain) is plain


def test_a_call_in_a_whole_answer_becomes_a_call() -> None:
    made = calls_filter()
    said = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": "{}"}]'
    answer = {"choices": [{"index": 0, "message": {"content": said}, "finish_reason": "stop"}]}
    changed: Any = made.whole(json.dumps(answer).encode())
    [choice] = changed["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert [each["function"]["name"] for each in choice["message"]["tool_calls"]] == ["f", "g"]
    assert made.whole(b'{"choices": [{"message": {"content": "Hi"}}]}') is None
    assert made.whole(b"plain") is None


def test_only_named_models_and_requests_with_tools_are_looked_at() -> None:
    assert create("interceptor", "tool_calls").answer(request(tools=[{}])) is None
    it = create("interceptor", "tool_calls", {"models": ["m"]})
    assert it.answer(request()) is None
    assert it.answer(request(tools=[{}], path="/v1/completions")) is None


def test_a_leaked_call_has_its_own_place_behind_those_of_the_engine() -> None:
    made = calls_filter()
    first = {"index": 0, "id": "a", "function": {"name": "g", "arguments": "{}"}}
    own = event("tool", tool_calls=[first])
    assert made.event(own) is own
    assert made.event(event("text", "a <")) == [Event("text", 0, "a ")]
    passed: Any = made.event(own)
    assert [each.text for each in passed] == ["<", ""], "no call overtakes the text before it"
    leaked: Any = made.event(event("text", CALL))
    assert [each.data["choices"][0]["delta"]["tool_calls"][0]["index"] for each in leaked] == [1]


# --- what requests ask


def test_a_key_is_made_once_for_all() -> None:
    asked = request(n=1)
    assert key_of(asked) is key_of(asked)
    assert key_of(msgspec.structs.replace(asked, body=b"{}")) != key_of(asked)


# --- patterns


def test_a_pattern_has_flags_and_groups_of_its_own() -> None:
    patterns = ["(?i)name this", r"(ha)\1!"]
    it = create("interceptor", "small_tasks", {"model": "small", "patterns": patterns})
    for prompt in ("NAME THIS chat", "haha!"):
        assert before(it, request(messages=[{"content": prompt}])) is not None
    with pytest.raises(ConfigError, match="is no regular expression"):
        SmallTasks(SmallTasks.Config(patterns=["("]))
