"""Interceptors decide about requests and give each answer a filter."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import msgspec
import pytest

from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import collect
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.jobs.job import InferenceJob
from enginehouse.relay.relayed_request import RelayedRequest
from enginehouse_interception.interception import Interception, Interceptors
from enginehouse_kit.guards import Guard, GuardAnswer, GuardRequest
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
from tests.support.keys import bearer, key
from tests.support.paths import ROOT
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until

Before = Callable[[InterceptedRequest], Any]


class Probe(Interceptor):
    """Does what the test says."""

    before_: ClassVar[Before]
    filter_: ClassVar[Callable[[InterceptedRequest], Any]]
    seen: ClassVar[list[InterceptedRequest]] = []

    async def before(self, request: InterceptedRequest) -> Any:
        self.seen.append(request)
        said = type(self).before_(request)
        return await said if asyncio.isfuture(said) or asyncio.iscoroutine(said) else said

    def answer(self, request: InterceptedRequest) -> Any:
        return type(self).filter_(request)


class Second(Probe):
    """Another one of its kind."""


class OnlyFilters(Interceptor):
    """Sees answers alone."""

    def answer(self, request: InterceptedRequest) -> Any:
        return Probe.filter_(request)


class Masks(Guard):
    """Replaces secrets, and notes what it sees."""

    seen: ClassVar[list[str]] = []

    async def before(self, request: GuardRequest, caller: str | None) -> None:
        self.seen.append("before")

    async def after(self, answer: GuardAnswer) -> Change | None:
        self.seen.append("after")
        return Change(answer.body.replace(b"secret", b"******")) if b"secret" in answer.body else None

    def on_text(self, piece: str) -> str:
        return piece.replace("secret", "******")


class Recorder(AnswerFilter):
    """Notes all that it sees, and changes nothing."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.data: list[str] = []

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        self.calls.append(("head", status))

    def event(self, event: Event) -> Any:
        self.calls.append((event.kind, event.choice, event.text))
        if event.kind == "text":
            self.data.append(event.data["choices"][0]["delta"]["content"])
        return event

    def whole(self, body: bytes) -> Any:
        self.calls.append(("whole", body))

    def broken(self, error: Mapping[str, Any]) -> None:
        self.calls.append(("broken", error["code"]))

    def end(self) -> Any:
        self.calls.append("end")


def interceptors_of(gateway: ServedGateway) -> Interceptors:
    middleware = gateway.relay.context.interception
    assert isinstance(middleware, Interception)
    return middleware.interceptors


def nothing(_: InterceptedRequest) -> None:
    """Let the request and its answer pass."""


@pytest.fixture
def registry() -> Registry:
    found = collect(PluginSettings(enabled=[])).registry
    kinds = (
        ("interceptor", "probe", Probe),
        ("interceptor", "second", Second),
        ("interceptor", "only_filters", OnlyFilters),
        ("guard", "masks", Masks),
    )
    found.add(
        [
            Registered(
                entry_point="t", module="t", distribution="t", version="1", kind=kind, type=type, factory=factory
            )
            for kind, type, factory in kinds
        ]
    )
    return found


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    Probe.seen, Second.seen, Masks.seen = [], [], []
    for each in (Probe, Second):
        each.before_ = each.filter_ = nothing
    yield
    for each in (Probe, Second):
        each.before_ = each.filter_ = nothing


@pytest.fixture
async def house(house: OpenGateway) -> OpenGateway:
    """Gateways with the interceptor ``probe``."""

    async def opened(*engines: Any, **sections: Any) -> ServedGateway:
        return await house(*engines, **{"interceptors": ["probe"], **sections})

    return opened


async def ask(gateway: ServedGateway, *lines: bytes, path: str = "/v1/chat/completions", **body: object) -> RawResponse:
    messages = {} if path == "/v1/completions" else {"messages": [{"role": "user", "content": "Hello"}]}
    return await gateway.ask(gateway.post({**messages, **body}, b"x-request-id: r1", *lines, path=path))


async def record(gateway: ServedGateway, name: str = "r1", *lines: bytes) -> dict[str, Any]:
    """The record of a request, once it has ended."""
    await gateway.until(lambda: not gateway.relay.live)
    found: dict[str, Any] = msgspec.json.decode((await gateway.ask(gateway.get(f"/api/requests/{name}", *lines))).body)
    return found


def event(content: str | None = None, finish: str | None = None, **more: object) -> bytes:
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: %s\n\n" % msgspec.json.encode({"id": "x", "model": "m", "choices": [choice], **more})


DONE = b"data: [DONE]\n\n"


def data_of(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]


def text_of(body: bytes) -> str:
    choices = [choice for each in data_of(body) for choice in each.get("choices", ())]
    return "".join(choice.get("delta", {}).get("content") or "" for choice in choices)


# --- requests


async def test_an_interceptor_sees_the_request_with_its_texts(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), auth={"keys": [key("a")]})
    parts = [{"type": "text", "text": "two"}, {"type": "text", "text": "parts"}]
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "b"}'}}
    messages = [
        {"role": "system", "content": "Be brief"},
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    raw = json.dumps({"model": "m", "messages": messages}).replace("brief", "b\\u0072ief").encode()
    reply = await gateway.ask(gateway.post(raw, bearer("a"), b"x-team: red", b"x-request-id: r1"))
    assert reply.status == 200
    [seen] = Probe.seen
    assert (seen.path, seen.protocol, seen.model, seen.caller) == ("/v1/chat/completions", "openai", "m", "a")
    assert (seen.headers["x-team"], seen.headers["x-request-id"]) == ("red", "r1")
    assert "authorization" not in seen.headers
    assert seen.body == raw
    assert list(seen.text) == ["Be brief", "two\nparts", '{"a": "b"}']


@pytest.mark.parametrize(
    ("path", "body", "protocol"),
    [
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}, "messages"),
        ("/v1/responses", {"input": "Hello"}, "responses"),
        ("/api/chat", {"messages": [{"role": "user", "content": "Hello"}], "stream": False}, "ollama"),
    ],
)
async def test_other_protocols_are_seen_as_openais(
    house: OpenGateway, engine: StartEngine, path: str, body: dict[str, object], protocol: str
) -> None:
    served = await engine()
    gateway = await house(served)
    Probe.filter_ = lambda request: Upper()
    served.says(b'{"choices": [{"message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]}')
    reply = await gateway.ask(gateway.post(body, path=path))
    [seen] = Probe.seen
    assert (seen.path, seen.protocol, list(seen.text)) == ("/v1/chat/completions", protocol, ["Hello"])
    assert b"FINE" in reply.body


class Upper(AnswerFilter):
    """Makes texts upper case."""

    def whole(self, body: bytes) -> bytes:
        return body.replace(b"fine", b"FINE")

    def event(self, event: Event) -> Event:
        return msgspec.structs.replace(event, text=event.text.upper()) if event.kind == "text" else event


async def test_prompts_and_inputs_are_texts(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    await ask(gateway, path="/v1/completions", prompt=["a", "b"])
    await gateway.ask(gateway.post({"input": "c"}, path="/v1/embeddings"))
    assert [list(each.text) for each in Probe.seen] == [["a", "b"], ["c"]]


async def test_requests_are_refused_and_changed(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, interceptors=["probe", "second"])
    Probe.before_ = lambda request: Refuse(451, "not_here", "No")
    reply = await ask(gateway)
    assert (reply.status, reply.code, served.calls) == (451, "not_here", [])
    assert (await record(gateway))["code"] == "not_here"
    Probe.before_ = lambda request: Change({"model": "m", "messages": [], "n": 2})
    assert (await ask(gateway)).status == 200
    assert json.loads(served.calls[0].body)["n"] == 2
    assert json.loads(Second.seen[-1].body)["n"] == 2
    page = await gateway.ask(gateway.get("/metrics"))
    assert b'enginehouse_intercepted_total{interceptor="probe",outcome="changed"} 1' in page.body


@pytest.mark.parametrize(
    ("before", "status", "words"),
    [
        (lambda request: 1 / 0, 500, "failed with ZeroDivisionError"),
        (lambda request: "nonsense", 500, "must return None, Refuse, Change, Answer or Join, got 'nonsense'"),
        (lambda request: asyncio.sleep(60), 503, "did not answer within 0.05 s"),
        (lambda request: Answer(99, b""), 500, "must answer with a status from 200 to 599"),
        (lambda request: Answer(200, {"a": object()}), 500, "failed with TypeError"),
        (lambda request: Answer(200, b"", "text/plain\r\nx: y"), 500, "must answer with bytes or a dict"),
        (lambda request: Refuse(200, "a", "b"), 500, "must refuse with a status from 400 to 599"),
    ],
)
async def test_an_interceptor_that_fails_is_named(
    house: OpenGateway, engine: StartEngine, before: Before, status: int, words: str
) -> None:
    served = await engine()
    gateway = await house(served, interceptors=[{"type": "probe", "timeout": 0.05}])
    Probe.before_ = before
    reply = await ask(gateway)
    assert (reply.status, reply.code) == (status, "plugin_failed")
    assert f"interceptor 'probe' of plugin 't' {words}" in reply.error["message"]
    assert served.calls == []


@pytest.mark.parametrize(
    "before", [lambda request: 1 / 0, lambda request: "nonsense", lambda request: Answer(200, {"no json": object()})]
)
async def test_requests_pass_an_interceptor_that_may_fail(
    house: OpenGateway, engine: StartEngine, before: Before
) -> None:
    gateway = await house(await engine(), interceptors=[{"type": "probe", "on_error": "pass"}])
    Probe.before_ = before
    Probe.filter_ = lambda request: 1 / 0
    reply = await ask(gateway)
    assert (reply.status, reply.header("x-enginehouse-answered-by")) == (200, None)


@pytest.mark.parametrize("type", ["probe", "only_filters"])
@pytest.mark.parametrize(
    ("filter", "words"), [(lambda request: 1 / 0, "ZeroDivisionError"), (lambda request: 5, "an AnswerFilter or None")]
)
async def test_a_filter_that_cannot_be_made_is_named(
    house: OpenGateway, engine: StartEngine, type: str, filter: Before, words: str
) -> None:
    served = await engine()
    gateway = await house(served, interceptors=[type])
    Probe.filter_ = filter
    reply = await ask(gateway)
    assert (reply.status, reply.code) == (500, "plugin_failed")
    assert f"interceptor '{type}'" in reply.error["message"]
    assert words in reply.error["message"]
    assert served.calls == []


# --- answers without an engine

WHOLE: dict[str, Any] = {
    "id": "x",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


async def test_an_answer_needs_no_engine(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    Probe.before_ = lambda request: Answer(200, WHOLE)
    Probe.filter_ = lambda request: 1 / 0  # its own filter does not see it
    reply = await ask(gateway)
    assert (reply.status, json.loads(reply.body)) == (200, WHOLE)
    assert (reply.header("content-type"), reply.header("x-request-id")) == ("application/json", "r1")
    assert reply.header("x-enginehouse-answered-by") == "probe"
    assert served.calls == []
    found = await record(gateway)
    assert (found["status"], found["outcome"], found["attempts"], found["asked"]) == (200, "answered", [], "m")
    page = await gateway.ask(gateway.get("/metrics"))
    assert b'enginehouse_intercepted_total{interceptor="probe",outcome="answered"} 1' in page.body


async def test_a_whole_answer_is_sent_as_a_stream(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    Probe.before_ = lambda request: Answer(200, WHOLE)
    reply = await ask(gateway, stream=True, stream_options={"include_usage": True})
    assert reply.value("content-type").startswith("text/event-stream")
    assert text_of(reply.body) == "Hi"
    events = data_of(reply.body)
    assert {each["object"] for each in events} == {"chat.completion.chunk"}
    assert events[-1]["usage"] == WHOLE["usage"]
    assert reply.body.endswith(DONE)
    assert (await record(gateway))["stream"]


async def test_an_answer_is_in_the_clients_dialect(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    Probe.before_ = lambda request: Answer(200, WHOLE)
    asked = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
    reply = await gateway.ask(gateway.post({**asked, "stream": True}, path="/v1/messages"))
    assert b"event: message_start" in reply.body
    assert b"event: message_stop" in reply.body
    reply = await gateway.ask(gateway.post(asked, path="/v1/messages"))
    assert json.loads(reply.body)["content"][0]["text"] == "Hi"


async def test_events_and_errors_are_answered_as_they_are(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    Probe.before_ = lambda request: Answer(200, event("Hi") + DONE, "text/event-stream")
    assert (await ask(gateway, stream=True)).body == event("Hi") + DONE
    Probe.before_ = lambda request: Answer(418, {"error": {"message": "No", "code": "teapot"}})
    reply = await ask(gateway, stream=True)
    assert (reply.status, reply.code) == (418, "teapot")
    await gateway.until(lambda: not gateway.relay.live)


async def test_an_answer_passes_the_filters_of_others(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), interceptors=["probe", "second"], guards=["masks"])
    said = json.loads(json.dumps(WHOLE).replace("Hi", "a secret fine"))
    Probe.before_ = lambda request: Answer(200, said)
    Second.filter_ = lambda request: Upper()
    reply = await ask(gateway)
    assert json.loads(reply.body)["choices"][0]["message"]["content"] == "a ****** FINE"
    reply = await ask(gateway, stream=True)
    assert text_of(reply.body) == "A SECRET FINE", "the guard sees what the client gets"
    await gateway.until(lambda: not gateway.relay.live)


FAULT = b'data: {"error": {"message": "No", "code": "teapot"}}\n\n'


@pytest.mark.parametrize("after", [FAULT, DONE])
async def test_nothing_passes_filters_after_the_end_of_an_answer(
    house: OpenGateway, engine: StartEngine, after: bytes
) -> None:
    gateway = await house(await engine(), interceptors=["probe", "second"])
    recorder = Recorder()
    Probe.before_ = lambda request: Answer(200, event("Hi") + after + event("secret") + DONE, "text/event-stream")
    Second.filter_ = lambda request: recorder
    assert (await ask(gateway, stream=True)).body == event("Hi") + after
    assert recorder.data == ["Hi"]
    assert recorder.calls[-1] == ("end" if after == DONE else ("broken", "teapot"))


async def test_blanks_around_the_type_of_an_answer_hide_its_events_from_no_filter(
    house: OpenGateway, engine: StartEngine
) -> None:
    gateway = await house(await engine(), interceptors=["probe", "second"])
    Probe.before_ = lambda request: Answer(200, event("Hi") + DONE, " text/event-stream ")
    Second.filter_ = lambda request: Upper()
    assert text_of((await ask(gateway, stream=True)).body) == "HI"


@pytest.mark.parametrize(("path", "error"), [("/v1/messages", b"event: error"), ("/api/chat", b'{"error":"No"}')])
async def test_nothing_follows_an_error_event_of_an_answer_in_another_protocol(
    house: OpenGateway, engine: StartEngine, path: str, error: bytes
) -> None:
    gateway = await house(await engine())
    Probe.before_ = lambda request: Answer(200, event("Hi") + FAULT + event("more") + DONE, "text/event-stream")
    asked = {"max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
    reply = await gateway.ask(gateway.post(asked, path=path))
    said, _, rest = reply.body.rpartition(error)
    assert b"Hi" in said
    assert b"more" not in reply.body
    assert rest.count(b"\n\n" if path == "/v1/messages" else b"\n") == 1


async def test_an_answer_is_only_for_those_who_may_use_the_model(house: OpenGateway, engine: StartEngine) -> None:
    keys = [key("a", models=["other"]), key("b", requests_per_minute=1), key("c", tokens_per_minute=100)]
    gateway = await house(await engine(), auth={"keys": keys})
    Probe.before_ = lambda request: Answer(200, WHOLE)
    assert (await ask(gateway, bearer("a"))).code == "forbidden"
    reply = await ask(gateway, bearer("b"))
    assert (reply.status, reply.header("x-ratelimit-remaining-requests")) == (200, "0")
    assert (await ask(gateway, bearer("b"))).code == "rate_limited"
    for _ in range(5):
        assert (await ask(gateway, bearer("c"), max_tokens=60)).status == 200, "it costs no tokens"


async def test_an_answer_that_a_filter_refuses_is_an_error(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine(), interceptors=["probe", "second"])
    Probe.before_ = lambda request: Answer(200, WHOLE)
    Second.filter_ = lambda request: Says(Refuse(422, "bad", "Bad"))
    for stream in (False, True):
        reply = await ask(gateway, stream=stream)
        assert (reply.status, reply.code) == (422, "bad")
        assert (await record(gateway))["status"] == 422


class Says(AnswerFilter):
    """Returns one thing for everything."""

    def __init__(self, said: Any) -> None:
        self._said = said

    def whole(self, body: bytes) -> Any:
        return self._said

    def event(self, event: Event) -> Any:
        return self._said


# --- streams


async def test_a_filter_sees_each_event_and_leaves_the_bytes(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    made = Recorder()
    Probe.filter_ = lambda request: made
    odd = b'data: {"choices": [ {"index":0, "delta":{"content":"b"}} ]}\r\n\r\n'
    call = {"index": 0, "function": {"name": "f", "arguments": '{"a'}}
    pieces = [
        event(None) + b": a comment\n\n",
        b'data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}\n\n',
        event("a") + odd[:20],
        odd[20:],
        b"data: %s\n\n" % json.dumps({"choices": [{"index": 1, "delta": {"tool_calls": [call]}}]}).encode(),
        event("c", "stop"),
        b'data: {"choices":[],"usage":{"completion_tokens":3}}\n\n',
        DONE,
    ]
    served.streams(*pieces, served.END)
    reply = await ask(gateway, stream=True)
    assert reply.body == b"".join(pieces)
    assert made.calls == [
        ("head", 200),
        ("other", 0, ""),
        ("thinking", 0, "hm"),
        ("text", 0, "a"),
        ("text", 0, "b"),
        ("tool", 1, '{"a'),
        ("text", 0, "c"),
        ("finish", 0, ""),
        ("usage", 0, ""),
        "end",
    ]


class Holds(AnswerFilter):
    """Holds all text until a word is whole."""

    def __init__(self) -> None:
        self._held = ""

    def event(self, event: Event) -> Any:
        if event.kind != "text":
            return [*self._rest(), event]
        self._held += event.text
        return None if len(self._held) < 6 else self._rest()

    def _rest(self) -> list[Event]:
        text, self._held = self._held.replace("secret", "******"), ""
        return [Event("text", 0, text)] if text else []

    def end(self) -> Any:
        return self._rest()


async def test_a_filter_changes_what_it_has_held(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    Probe.filter_ = lambda request: Holds()
    served.streams(event("se"), event("cr"), event("et"), event("x"), DONE, served.END)
    reply = await ask(gateway, stream=True)
    assert text_of(reply.body) == "******x"
    assert all(each["id"] == "x" for each in data_of(reply.body)), "made events are like the others"
    assert gateway.relay.context.engine_memory.held == 0


class HoldsFirst(AnswerFilter):
    """Holds events until there are three."""

    def __init__(self) -> None:
        self._seen = 0

    def event(self, event: Event) -> Event | None:
        self._seen += 1
        return event if self._seen == 3 else None


async def test_held_events_pass_in_their_order(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    Probe.filter_ = lambda request: HoldsFirst()
    served.streams(*(event(text) for text in "abcde"), DONE, served.END)
    reply = await ask(gateway, stream=True)
    assert text_of(reply.body) == "abcde"
    assert reply.body.endswith(DONE)
    assert gateway.relay.context.engine_memory.held == 0


async def test_what_filters_hold_has_a_bound(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, server={"max_engine_memory": 4000})
    Probe.filter_ = lambda request: Says(None)
    served.streams(*(event("x" * 200) for _ in range(30)), DONE, served.END)
    reply = await ask(gateway, stream=True)
    assert (reply.status, reply.code) == (502, "upstream_error")
    assert "while the interceptor 'probe' of plugin 't' held it" in reply.error["message"]
    assert gateway.relay.context.engine_memory.held == 0


async def test_filters_follow_each_other(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, interceptors=["probe", "second"])
    made = Recorder()
    Probe.filter_ = lambda request: Upper()
    Second.filter_ = lambda request: made
    served.streams(event("a", "stop"), DONE, served.END)
    assert text_of((await ask(gateway, stream=True)).body) == "A"
    assert ("text", 0, "A") in made.calls
    assert made.data == ["A"], "the data have the changed text too"


class Twice(AnswerFilter):
    def event(self, event: Event) -> Any:
        return (event, event) if event.kind == "text" else ()


async def test_a_filter_repeats_and_drops_events(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    Probe.filter_ = lambda request: Twice()
    served.streams(event(None), event("a"), event("b"), DONE, served.END)
    reply = await ask(gateway, stream=True)
    assert [each["choices"][0]["delta"]["content"] for each in data_of(reply.body)] == ["a", "a", "b", "b"]


async def test_several_choices_in_one_event_are_seen_apart(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    Probe.filter_ = lambda request: Upper()
    choices = [{"index": n, "delta": {"content": t}, "finish_reason": None} for n, t in enumerate("ab")]
    served.streams(b"data: %s\n\n" % json.dumps({"choices": choices}).encode(), DONE, served.END)
    reply = await ask(gateway, stream=True, n=2)
    found = [choice for each in data_of(reply.body) for choice in each["choices"]]
    assert [(each["index"], each["delta"]["content"]) for each in found] == [(0, "A"), (1, "B")]


class RefusesAt(AnswerFilter):
    """Refuses, or fails, at a text."""

    def __init__(self, text: str, said: Any) -> None:
        self._text = text
        self._said = said

    def event(self, event: Event) -> Any:
        if event.text == self._text:
            if isinstance(self._said, Exception):
                raise self._said
            return self._said
        return event


class SaysAt(AnswerFilter):
    """Says something in place of the text ``b``, or at the end."""

    def __init__(self, at: str, said: Any) -> None:
        self._at = at
        self._said = said

    def event(self, event: Event) -> Any:
        return self._said if self._at == "event" and event.text == "b" else event

    def end(self) -> Any:
        return self._said if self._at == "end" else None


async def test_a_refusal_of_the_beginning_has_its_own_status(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    Probe.filter_ = lambda request: RefusesAt("a", Refuse(403, "stopped", "Enough"))
    served.streams(event("a"), gate)
    reply = await ask(gateway, stream=True)
    assert (reply.status, reply.code) == (403, "stopped")
    found = await record(gateway)
    assert (found["status"], found["code"]) == (403, "stopped")


@pytest.mark.parametrize(
    ("said", "code", "status"),
    [
        (Refuse(403, "stopped", "Enough"), "stopped", 403),
        (ValueError("broken"), "plugin_failed", 500),
        ("nonsense", "plugin_failed", 500),
        ([1], "plugin_failed", 500),
        (Event("tool", 0, "no data"), "plugin_failed", 500),
        (Event("text", 0, "x", {"a": object()}), "plugin_failed", 500),
        (Event("text", 0, 5), "plugin_failed", 500),  # type: ignore[arg-type]
        (Refuse(200, "stopped", "Enough"), "plugin_failed", 500),
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_refusal_or_a_failure_ends_the_stream(
    house: OpenGateway, engine: StartEngine, said: Any, code: str, status: int, at_once: bool
) -> None:
    served = await engine()
    gateway = await house(served, interceptors=["probe", "second"])
    made = Recorder()
    Probe.filter_ = lambda request: RefusesAt("b", said)
    Second.filter_ = lambda request: made
    pieces = [event("a"), event("b"), event("never"), DONE]
    served.streams(*([b"".join(pieces)] if at_once else pieces), served.END)
    reply = await ask(gateway, stream=True)
    assert text_of(reply.body) == "a"
    assert reply.body.count(b"event: error") == 1
    assert code.encode() in reply.body
    assert b"[DONE]" not in reply.body
    if code == "plugin_failed":
        assert b"interceptor 'probe'" in reply.body
    found = await record(gateway)
    assert (found["status"], found["code"]) == (status, code)
    assert made.calls[-1] == ("broken", code)


@pytest.mark.parametrize(
    "said",
    [
        ValueError("broken"),
        "b",
        [Event("usage")],
        Event("error", 0, "broken"),
        Event("text", 0, "x", {"choices": [], "a": object()}),
        [Event("text", 0, "never"), Event("text", 0, "\ud800")],
        Event("text", 0, "x", {"no": "choices"}),
        Event("tool", 0, "x", {"choices": [{"delta": {"tool_calls": ["no call"]}}]}),
        Event(["text"], 0, "x"),  # type: ignore[arg-type]
        Refuse(200, "stopped", "Enough"),
    ],
)
async def test_a_filter_that_may_fail_is_left_out_from_then_on(
    house: OpenGateway, engine: StartEngine, said: Any
) -> None:
    served = await engine()
    gateway = await house(served, interceptors=[{"type": "probe", "on_error": "pass"}])
    Probe.filter_ = lambda request: RefusesAt("b", said)
    served.streams(event("a"), event("b"), event("c"), DONE, served.END)
    reply = await ask(gateway, stream=True)
    assert text_of(reply.body) == "abc"
    assert reply.body.endswith(DONE)


ERROR: Event = Event("error", data={"error": {"message": "Enough", "code": "rate_limited", "details": {"a": 1}}})


@pytest.mark.parametrize("last", [[ERROR, Event("text", 0, "never")], [Event("other", data=ERROR.data)]])
@pytest.mark.parametrize("at", ["event", "end", "silent"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"])
async def test_nothing_follows_an_error_event_of_a_filter(
    house: OpenGateway, engine: StartEngine, path: str, at: str, last: list[Event]
) -> None:
    said = [Event("text", 0, "b"), *last]
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, interceptors=["probe", "second"])
    made = Recorder()
    Probe.filter_ = lambda request: Whispers(said) if at == "silent" else SaysAt(at, said)
    Second.filter_ = lambda request: made
    steps = [gate] if at == "silent" else [event("b"), event("never")] if at == "event" else []
    served.streams(event("a"), *steps, DONE, served.END)
    body = {"input": "Hello"} if path == "/v1/responses" else {}
    reply = await ask(gateway, path=path, stream=True, max_tokens=9, **body)
    assert reply.status == 200
    assert b"never" not in reply.body
    before, _, after = reply.body.rpartition(b"Enough")
    assert b'"b"' in before, "what comes before it passes"
    assert b"\n" not in after.rstrip(b"\n"), "nothing follows it"
    found = await record(gateway)
    assert (found["status"], found["code"]) == (429, "rate_limited")
    assert made.calls[-1] == ("broken", "rate_limited")


async def test_an_error_event_with_which_a_filter_begins_is_the_answer(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    Probe.filter_ = lambda request: SaysAt("event", ERROR)
    served.streams(event("b"), DONE, served.END)
    reply = await ask(gateway, stream=True)
    assert (reply.status, reply.code, reply.error["message"]) == (429, "rate_limited", "Enough")


async def test_a_filter_says_nothing_in_the_silence_after_the_end(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    Probe.filter_ = lambda request: Whispers(Event("text", 0, "never"))
    served.streams(event("a") + DONE, gate)
    client = await gateway.client()
    client.send(gateway.post({"stream": True}))
    await client.head()
    assert (await client.chunk()).endswith(DONE)
    gateway.relay.context.interception.check_time(1e9)  # type: ignore[union-attr]
    gate.set()
    assert await client.chunk() == b""


async def test_a_filter_learns_of_errors(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, routing={"max_retries": 0, "broken_stream": "error"})
    made: list[Recorder] = []

    def new(_: InterceptedRequest) -> Recorder:
        made.append(Recorder())
        return made[-1]

    Probe.filter_ = new
    served.says(b'{"error": {"message": "Too long", "code": "too_long"}}', 400)
    assert (await ask(gateway)).status == 400
    assert made[0].calls == [("head", 400), ("broken", "too_long")]
    served.streams(event("a"), served.RESET)
    assert b"event: error" in (await ask(gateway, stream=True)).body
    assert made[1].calls == [("head", 200), ("text", 0, "a"), ("broken", "upstream_error")]
    served.streams(event("a"), gate)
    client = await gateway.client()
    client.send(gateway.post({"stream": True}))
    await client.head()
    client.close()
    await until(lambda: len(made) == 3 and made[2].calls[-1:] == [("broken", "client_left")])


class Whispers(AnswerFilter):
    """Says something in the silence, or ends it."""

    def __init__(self, said: Any) -> None:
        self.said = said
        self.seconds: list[float] = []

    def silent(self, seconds: float) -> Any:
        self.seconds.append(seconds)
        said, self.said = self.said, None
        if isinstance(said, Exception):
            raise said
        return said


async def test_a_filter_may_speak_in_the_silence(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    made = Whispers(Event("text", 0, "(still here)"))
    Probe.filter_ = lambda request: made
    served.streams(event("a"), gate, event("b"), DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post({"stream": True}))
    await client.head()
    pieces = [await client.chunk(), await client.chunk()]
    gate.set()
    while piece := await client.chunk():
        pieces.append(piece)
    assert text_of(b"".join(pieces)) == "a(still here)b"
    assert made.seconds[0] >= 0
    await gateway.until(lambda: not gateway.relay.live)
    assert interceptors_of(gateway).listening == {}


@pytest.mark.parametrize(
    ("said", "code"), [(Refuse(504, "too_slow", "Too slow"), "too_slow"), (ValueError("no"), "plugin_failed")]
)
async def test_a_filter_may_end_a_silent_stream(house: OpenGateway, engine: StartEngine, said: Any, code: str) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    Probe.filter_ = lambda request: Whispers(said)
    served.streams(event("a"), gate)
    reply = await ask(gateway, stream=True)
    assert b"event: error" in reply.body
    assert code.encode() in reply.body
    assert (await record(gateway))["code"] == code


# --- whole answers and heads


@pytest.mark.parametrize(
    ("said", "status", "body"),
    [
        (None, 200, b'{"ok": true}'),
        (b"{}", 200, b"{}"),
        ({"a": 1}, 200, b'{"a":1}'),
        (Refuse(422, "bad", "Bad"), 422, None),
        ("nonsense", 500, None),
        ({"a": object()}, 500, None),
    ],
)
async def test_a_whole_answer_is_changed_or_refused(
    house: OpenGateway, engine: StartEngine, said: Any, status: int, body: bytes | None
) -> None:
    gateway = await house(await engine())
    Probe.filter_ = lambda request: Says(said)
    reply = await ask(gateway)
    assert reply.status == status
    if body is not None:
        assert reply.body == body
    assert (await record(gateway))["status"] == status


class Heads(AnswerFilter):
    def __init__(self, more: Mapping[Any, Any]) -> None:
        self._more = more

    def head(self, status: int, headers: Mapping[str, str]) -> Any:
        assert headers["content-type"]
        return self._more


@pytest.mark.parametrize("stream", [False, True])
async def test_a_filter_changes_headers(house: OpenGateway, engine: StartEngine, stream: bool) -> None:
    served = await engine()
    gateway = await house(served)
    Probe.filter_ = lambda request: Heads({"X-More": "yes", "content-length": "3", "x-enginehouse-model": None})
    if stream:
        served.streams(event("a"), DONE, served.END)
    reply = await ask(gateway, stream=stream)
    assert (reply.status, reply.header("x-more"), reply.header("x-request-id")) == (200, "yes", "r1")
    assert (reply.header("x-enginehouse-backend"), reply.header("x-enginehouse-model")) == ("a", None)
    assert reply.body == (event("a") + DONE if stream else b'{"ok": true}')


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("more", [{"x": "a\r\nb: c"}, {"x y": "a"}, {"x": 5}])
async def test_bad_headers_are_refused(
    house: OpenGateway, engine: StartEngine, more: dict[str, Any], stream: bool
) -> None:
    served = await engine()
    gateway = await house(served)
    Probe.filter_ = lambda request: Heads(more)
    if stream:
        served.streams(event("a"), DONE, served.END)
    reply = await ask(gateway, stream=stream)
    assert (reply.status, reply.code) == (500, "plugin_failed")
    assert (await record(gateway))["status"] == 500


async def test_guards_see_requests_first_and_answers_last(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, guards=["masks"])
    Probe.before_ = lambda request: Masks.seen.append("interceptor")
    Probe.filter_ = lambda request: Says(b'{"a": "a secret"}')
    assert (await ask(gateway)).body == b'{"a": "a ******"}'
    assert Masks.seen == ["before", "interceptor", "after"]


OLLAMA_LOADS = [("/api/chat", {"messages": []}), ("/api/generate", {"prompt": "", "keep_alive": 60})]


@pytest.mark.parametrize(("path", "body"), OLLAMA_LOADS)
@pytest.mark.parametrize("said", [Answer(200, {"choices": []}), Join("r0")])
async def test_no_interceptor_answers_in_place_of_a_load_or_filters_what_nobody_gets(
    house: OpenGateway, engine: StartEngine, path: str, body: dict[str, object], said: Any
) -> None:
    served = await engine()
    gateway = await house(served)
    made: list[object] = []
    Probe.before_ = lambda request: said
    Probe.filter_ = made.append
    reply = await gateway.ask(gateway.post(body, b"x-request-id: r1", path=path))
    assert (reply.status, json.loads(reply.body)["done_reason"]) == (200, "load")
    assert (len(served.calls), made) == (1, [])
    assert (await record(gateway))["outcome"] == "served"


async def test_a_load_may_be_refused_or_get_another_model(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, backend={"models": ["m", "other"]})
    Probe.before_ = lambda request: Change({**json.loads(request.body), "model": "other"})
    assert (await gateway.ask(gateway.post({"messages": []}, path="/api/chat"))).status == 200
    assert json.loads(served.calls[0].body)["model"] == "other"
    Probe.before_ = lambda request: Refuse(403, "not_now", "Not now")
    reply = await gateway.ask(gateway.post({"messages": []}, path="/api/chat"))
    assert (reply.status, json.loads(reply.body), len(served.calls)) == (403, {"error": "Not now"}, 1)


# --- at start


def test_a_misspelt_method_of_a_filter_is_refused_with_its_class() -> None:
    with pytest.raises(TypeError, match="'evnt' is nearly 'event'"):

        class Misspelt(AnswerFilter):
            def evnt(self, event: Event) -> Event:
                return event


async def test_an_unknown_interceptor_is_refused_at_start(house: OpenGateway, engine: StartEngine) -> None:
    with pytest.raises(Exception, match="unknown interceptor 'prob'"):
        await house(await engine(), interceptors=["prob"])


# --- joining


async def test_a_request_joins_another_one_before_and_in_the_middle(house: OpenGateway, engine: StartEngine) -> None:
    served, gates = await engine(), [asyncio.Event(), asyncio.Event()]
    gateway = await house(served, auth={"keys": [key("a", admin=True), key("b")]})
    joins_after_first(("r1",))
    served.streams(gates[0], event("a"), gates[1], event("b"), DONE, served.END)
    first = asyncio.create_task(ask(gateway, bearer("a"), stream=True))
    await served.call()
    early = asyncio.create_task(ask_as(gateway, "r2", bearer("b"), stream=True))
    await joined(gateway, 1)
    gates[0].set()
    await until(lambda: served.calls[0].sent > 100)
    late = asyncio.create_task(ask_as(gateway, "r3", bearer("b"), stream=True))
    await joined(gateway, 2)
    gates[1].set()
    replies = [await first, await early, await late]
    assert [each.body for each in replies] == [event("a") + event("b") + DONE] * 3
    assert [each.header("x-request-id") for each in replies] == ["r1", "r2", "r3"]
    assert [each.header("x-enginehouse-joined") for each in replies] == [None, "r1", "r1"]
    assert len(served.calls) == 1
    found = await record(gateway, "r2", bearer("a"))
    assert (found["status"], found["outcome"], found["caller"], found["attempts"]) == (200, "joined", "b", [])
    assert (await record(gateway, "r1", bearer("a")))["outcome"] == "served"
    assert gateway.relay.context.engine_memory.held == 0
    assert interceptors_of(gateway).shared == {}


def joins_after_first(ids: tuple[str, ...] = ("r1",)) -> None:
    """All requests but the first of these ids join it."""
    Probe.before_ = lambda request: None if request.headers["x-request-id"] in ids else Join(ids[0])


async def ask_as(gateway: ServedGateway, name: str, *lines: bytes, **body: object) -> RawResponse:
    messages = [{"role": "user", "content": "Hello"}]
    return await gateway.ask(gateway.post({"messages": messages, **body}, b"x-request-id: " + name.encode(), *lines))


async def joined(gateway: ServedGateway, number: int) -> None:
    """Until so many requests have joined another one."""
    await until(lambda: gateway.relay.context.counters.intercepted["probe", "joined"] == number)


async def test_whole_answers_and_errors_are_joined_too(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, routing={"max_retries": 0})
    joins_after_first()
    served.plays(gate, served.answer(b'{"a": 1}'))
    first = asyncio.create_task(ask(gateway))
    await served.call()
    second = asyncio.create_task(ask_as(gateway, "r2"))
    await joined(gateway, 1)
    gate.set()
    assert (await first).body == (await second).body == b'{"a": 1}'
    gate.clear()
    served.plays(gate, served.answer(b'{"error": {"message": "No", "code": "no"}}', 400))
    first = asyncio.create_task(ask(gateway))
    await served.call(1)
    second = asyncio.create_task(ask_as(gateway, "r3"))
    await joined(gateway, 2)
    gate.set()
    assert ((await first).status, (await second).status) == (400, 400)
    found = await record(gateway, "r3")
    assert (found["status"], found["code"]) == (400, "no")


async def test_a_client_that_leaves_does_not_end_the_answer_for_others(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    served.streams(event("a"), gate, event("b"), DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post({"messages": [], "stream": True}, b"x-request-id: r1"))
    await client.head()
    second = asyncio.create_task(ask_as(gateway, "r2", stream=True))
    third = await gateway.client()
    third.send(gateway.post({"messages": [], "stream": True}, b"x-request-id: r3"))
    await joined(gateway, 2)
    await third.head()
    client.close()
    third.close()
    await until(lambda: len(gateway.relay.live) == 2)
    gate.set()
    assert (await second).body == event("a") + event("b") + DONE
    found = await record(gateway, "r1")
    assert (found["status"], found["outcome"], found["attempts"][0]["outcome"]) == (499, "client_left", "served")
    assert (await record(gateway, "r3"))["status"] == 499
    assert (await record(gateway, "r2"))["outcome"] == "joined"


async def test_the_engine_stops_when_the_last_client_leaves(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    served.streams(event("a"), gate)
    clients = []
    for name in (b"r1", b"r2"):
        client = await gateway.client()
        client.send(gateway.post({"messages": [], "stream": True}, b"x-request-id: " + name))
        await client.head()
        clients.append(client)
    for client in clients:
        assert not served.calls[0].closed.is_set()
        client.close()
        await until(lambda client=client: len(gateway.relay.live) < 2 or client is clients[0])  # type: ignore[misc]
    await gateway.quiet()
    await until(served.calls[0].closed.is_set)


async def test_a_request_that_cannot_join_goes_its_own_way(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    served.streams(event("a"), gate, DONE, served.END)
    first = asyncio.create_task(ask(gateway, stream=True))
    await served.call()
    assert (await ask_as(gateway, "r2")).body == b'{"ok": true}', "it asks for no stream"
    Probe.before_ = lambda request: Join("nobody" if request.headers["x-request-id"] == "r3" else "r4")
    assert (await ask_as(gateway, "r3")).status == 200
    assert (await ask_as(gateway, "r4")).status == 200, "it cannot join itself"
    gate.set()
    await first
    assert len(served.calls) == 4


async def test_what_joined_goes_on_alone_if_the_other_is_withdrawn(house: OpenGateway, engine: StartEngine) -> None:
    """Two requests that want to join each other: one of them asks an engine."""
    served = await engine()
    gateway = await house(served)
    Probe.before_ = lambda request: Join({"r1": "r2", "r2": "r1"}[request.headers["x-request-id"]])
    replies = await asyncio.gather(ask_as(gateway, "r1"), ask_as(gateway, "r2"))
    assert [each.body for each in replies] == [b'{"ok": true}'] * 2


@pytest.mark.parametrize("joins", [False, True])
async def test_nothing_is_left_of_a_request_whose_client_leaves(
    house: OpenGateway, engine: StartEngine, joins: bool
) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    served.streams(event("a"), gate)
    clients = []
    for name in (b"r1", b"r2")[: 1 + joins]:
        client = await gateway.client()
        client.send(gateway.post({"messages": [], "stream": True}, b"x-request-id: " + name))
        await client.head()
        clients.append(client)
    for client in clients:
        client.close()
    await gateway.quiet()
    assert interceptors_of(gateway).shared == {}
    assert gateway.relay.context.engine_memory.held == 0
    served.says()
    assert (await ask_as(gateway, "r3")).status == 200, "it waits for nobody who has left"


async def test_an_id_that_several_requests_have_is_not_joined(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    served.streams(event("a"), gate, DONE, served.END)
    first = asyncio.create_task(ask(gateway, stream=True))
    await served.call()
    served.streams(event("other"), gate, DONE, served.END)
    second = asyncio.create_task(ask(gateway, stream=True))
    await served.call(1)
    served.streams(event("own"), DONE, served.END)
    assert text_of((await ask_as(gateway, "r2", stream=True)).body) == "own"
    gate.set()
    assert [text_of((await each).body) for each in (first, second)] == ["a", "other"]


async def test_what_loses_the_answer_that_it_joined_is_decided_about_on(
    house: OpenGateway, engine: StartEngine
) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, interceptors=["probe", "second"])
    joins_after_first()
    Second.before_ = lambda request: Refuse(403, "no", "No") if request.headers["x-request-id"] == "r2" else None
    served.plays(gate, served.answer(b'{"ok": true}'))
    first = asyncio.create_task(ask(gateway))
    await served.call()
    second = asyncio.create_task(ask_as(gateway, "r2"))
    await joined(gateway, 1)
    interceptors_of(gateway).shared[b"r1"][0].close()
    assert (await second).code == "no"
    gate.set()
    assert (await first).status == 200
    assert len(Second.seen) == 2
    assert len(served.calls) == 1


async def test_more_than_is_kept_is_not_joined(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    served.streams(*[event("x" * 100_000)] * 12, gate, DONE, served.END)
    first = asyncio.create_task(ask(gateway, stream=True))
    await served.call()
    await until(lambda: served.calls[0].sent > 1_200_000)
    await until(lambda: gateway.relay.context.engine_memory.held == 0)
    served.says()
    assert (await ask_as(gateway, "r2", stream=False)).status == 200
    served.streams(event("own"), DONE, served.END)
    assert text_of((await ask_as(gateway, "r3", stream=True)).body) == "own"
    gate.set()
    await first


async def test_a_slow_client_does_not_stop_the_others(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    served.streams(event("a"), gate, *[event("x" * 100_000)] * 200, DONE, served.END)
    slow = await gateway.client()
    slow.send(gateway.post({"messages": [], "stream": True}, b"x-request-id: r1"))
    await slow.head()
    second = asyncio.create_task(ask_as(gateway, "r2", stream=True))
    await joined(gateway, 1)
    gate.set()
    assert len(text_of((await second).body)) == 20_000_001
    slow.close()
    await gateway.quiet()
    assert gateway.relay.context.engine_memory.held == 0


async def test_a_joined_request_is_cancelled_alone(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    served.streams(event("a"), gate, event("b"), DONE, served.END)
    first = asyncio.create_task(ask(gateway, stream=True))
    await served.call()
    second = asyncio.create_task(ask_as(gateway, "r2", stream=True))
    await joined(gateway, 1)
    await until(lambda: gateway.relay.context.engine_memory.held > 0)
    gateway.relay.find("r2")[0].cancel()
    reply = await second
    assert b"cancelled" in reply.body
    gate.set()
    assert text_of((await first).body) == "ab"
    assert (await record(gateway, "r2"))["code"] == "cancelled"
    newest = gateway.relay.context.activity.newest_first()
    assert [each.record.id for each in newest].count("r2") == 1


async def test_only_those_who_may_use_the_model_join(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, auth={"keys": [key("a"), key("b", models=["other"])]})
    joins_after_first()
    served.streams(event("a"), gate, DONE, served.END)
    first = asyncio.create_task(ask(gateway, bearer("a"), stream=True))
    await served.call()
    assert (await ask_as(gateway, "r2", bearer("b"), stream=True)).code == "forbidden"
    gate.set()
    await first


async def test_a_refused_stream_is_refused_for_all(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    Probe.filter_ = lambda request: RefusesAt("b", Refuse(403, "stopped", "Enough"))
    served.streams(event("a"), gate, event("b"), DONE, served.END)
    first = asyncio.create_task(ask(gateway, stream=True))
    await served.call()
    second = asyncio.create_task(ask_as(gateway, "r2", stream=True))
    await joined(gateway, 1)
    gate.set()
    assert (await first).body == (await second).body
    found = await record(gateway, "r2")
    assert (found["status"], found["code"]) == (403, "stopped")


async def test_joined_clients_get_their_own_dialects(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    joins_after_first()
    served.streams(gate, event("Hi"), event(None, "stop"), DONE, served.END)
    first = asyncio.create_task(ask(gateway, stream=True))
    await served.call()
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    second = asyncio.create_task(gateway.ask(gateway.post(body, b"x-request-id: r2", path="/v1/messages")))
    await joined(gateway, 1)
    gate.set()
    assert text_of((await first).body) == "Hi"
    reply = await second
    assert b"event: message_start" in reply.body
    assert b"event: message_stop" in reply.body


def test_texts_of_odd_bodies_are_none() -> None:
    def texts(body: bytes) -> list[str]:
        return list(InterceptedRequest("", "openai", "", {}, body).text)

    assert [texts(body) for body in (b"", b"{", b"\xff", b"[]", b"5", b'{"messages": 5}', b'{"prompt": [1, 2]}')] == [
        []
    ] * 7
    assert texts(b'{"messages": [5, {"content": [{"content": ["a"]}, 6]}]}') == ["", "a"]


@pytest.mark.parametrize("broken", [False, True])
async def test_a_joined_stream_that_waits_gets_heartbeats(
    house: OpenGateway, engine: StartEngine, broken: bool
) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, streams={"heartbeat": 15}, routing={"max_retries": 0})
    joins_after_first()
    error = served.answer(b'{"error": {"message": "No", "code": "no"}}', 400)
    served.plays(gate, error) if broken else served.streams(gate, event("a"), DONE, served.END)
    first = asyncio.create_task(ask(gateway, stream=True))
    await served.call()
    second = asyncio.create_task(ask_as(gateway, "r2", stream=True))
    await joined(gateway, 1)
    gateway.pass_time(16)
    gate.set()
    replies = [await first, await second]
    assert all(each.body.startswith(b": ping\n\n") for each in replies)
    if broken:
        assert all(each.body.count(b"event: error") == 1 for each in replies)
    else:
        assert all(each.body.endswith(event("a") + DONE) for each in replies)
    assert len(served.calls) == 1
    assert (await record(gateway, "r2"))["outcome"] == ("no" if broken else "joined")


OFF = (
    "enginehouse_interception",
    "enginehouse_interceptors",
    "enginehouse_batches",
    "enginehouse_energy",
    "enginehouse_hung",
    "enginehouse_kept_caches",
    "enginehouse_web_sockets",
)
"""The files of features that can be off."""


async def test_what_is_off_makes_no_call_in_a_request(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, interceptors=[], streams={"heartbeat": 0})
    called: set[str] = set()
    sys.setprofile(lambda frame, what, _: called.add(f"{frame.f_code.co_filename}:{frame.f_code.co_name}"))
    replies = [await ask(gateway, stream=False)]
    served.streams(gate, event("a"), DONE, served.END)
    silent = asyncio.create_task(ask(gateway, stream=True))
    await until(lambda: len(served.calls) == 2)
    gateway.pass_time(16)
    gate.set()
    replies.append(await silent)
    sys.setprofile(None)
    assert [reply.status for reply in replies] == [200, 200]
    assert any("relay" in call for call in called)
    assert all([*ROOT.glob(f"gateway/enginehouse/{part}*"), *ROOT.glob(f"plugins/{part}*")] for part in OFF)
    assert not [call for call in called if any(part in call for part in OFF)]
    methods = (RelayedRequest._keep_alive, Reply.ping, InferenceJob._aside)
    assert {call.partition(":")[2] for call in called}.isdisjoint(each.__name__ for each in methods)
