"""Guards decide about requests and answers; without them, nothing of this exists."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import msgspec
import pytest

from enginehouse import ConfigError
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import collect
from enginehouse.plugin_manager.registry import Registered, Registry
from enginehouse_kit.guards import Guard, GuardAnswer, GuardRequest
from enginehouse_kit.interceptors import Change, Refuse
from tests.support.keys import bearer, key
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import ScriptedEngine, StartEngine, chunk
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until

SEEN: list[tuple[GuardRequest, str | None]] = []
GATES: list[asyncio.Event] = []


class Words(Guard):
    """Refuses, changes, fails or waits, as the body says."""

    async def before(self, request: GuardRequest, caller: str | None) -> Any:
        SEEN.append((request, caller))
        if b"refuse-me" in request.body:
            return Refuse(451, "not_here", "We do not talk about this")
        if b"change-me" in request.body:
            return Change(request.body.replace(b"change-me", b"changed"))
        if b"as-dict" in request.body:
            return Change({"model": "m", "prompt": "a dict"})
        if b"raise" in request.body:
            raise ValueError("broken")
        if b"nonsense" in request.body:
            return "nonsense"
        if b"wait" in request.body:
            await GATES[0].wait()
        return None


class Answers(Guard):
    async def after(self, answer: GuardAnswer) -> Any:
        if b"bad" in answer.body:
            return Refuse(422, "bad_answer", f"Not for {answer.caller}")
        return Change(answer.body.replace(b"secret", b"******")) if b"secret" in answer.body else None


class Slow(Guard):
    async def after(self, answer: GuardAnswer) -> Any:
        await GATES[0].wait()


class Wrong(Guard):
    async def after(self, answer: GuardAnswer) -> Any:
        return answer.body


class Careless(Guard):
    """Fails at what it should find."""

    look_back: ClassVar[int] = 5

    def on_text(self, piece: str) -> Any:
        if "raise" in piece:
            raise ValueError("broken")
        return 5 if "nonsense" in piece else piece


class Texts(Guard):
    look_back: ClassVar[int] = 5

    def on_text(self, piece: str) -> Any:
        if "stop" in piece:
            return Refuse(403, "stopped", "That is enough")
        return piece.replace("secret", "******")


@pytest.fixture
def registry() -> Registry:
    found = collect(PluginSettings(enabled=[])).registry
    guards = {"words": Words, "answers": Answers, "texts": Texts, "careless": Careless, "slow": Slow, "wrong": Wrong}
    for type, factory in guards.items():
        found.add(
            [
                Registered(
                    entry_point="t", module="t", distribution="t", version="1", kind="guard", type=type, factory=factory
                )
            ]
        )
    return found


@pytest.fixture(autouse=True)
def forget() -> None:
    SEEN.clear()
    GATES[:] = [asyncio.Event()]


async def ask(gateway: ServedGateway, prompt: str, *lines: bytes, **more: object) -> RawResponse:
    return await gateway.ask(gateway.post({"prompt": prompt, **more}, *lines, path="/v1/completions"))


def prompts(served: ScriptedEngine) -> list[str]:
    return [json.loads(call.body)["prompt"] for call in served.calls]


async def test_a_guard_sees_the_request_and_lets_it_go_on(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a")]}, guards=["words"])
    reply = await ask(gateway, "hello", bearer("a"), b"x-team: red")
    assert reply.status == 200
    ((request, caller),) = SEEN
    assert (request.path, request.model, caller) == ("/v1/completions", "m", "a")
    assert json.loads(request.body)["prompt"] == "hello"
    assert request.headers["x-team"] == "red"
    assert "secret" not in str(request.headers)
    assert prompts(served) == ["hello"]


async def test_a_guard_refuses_with_its_own_words(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a", max_concurrent=1)]}, guards=["words"])
    for _ in range(2):
        reply = await ask(gateway, "refuse-me", bearer("a"))
        assert (reply.status, reply.code, reply.error["message"]) == (451, "not_here", "We do not talk about this")
    assert served.calls == []
    (newest, _) = gateway.relay.context.activity.newest_first()
    assert (newest.record.caller, newest.record.code) == ("a", "not_here")
    await gateway.quiet()


@pytest.mark.parametrize(("prompt", "sent"), [("please change-me", "please changed"), ("as-dict", "a dict")])
async def test_a_guard_changes_the_body(house: OpenGateway, engine: StartEngine, prompt: str, sent: str) -> None:
    served = await engine()
    gateway = await house(served, guards=["words"])
    assert (await ask(gateway, prompt)).status == 200
    assert prompts(served) == [sent]


@pytest.mark.parametrize("prompt", ["raise", "nonsense", "wait"])
async def test_a_guard_that_fails_refuses_or_lets_pass(
    house: OpenGateway, engine: StartEngine, prompt: str, caplog: pytest.LogCaptureFixture
) -> None:
    served = await engine()
    strict = await house(served, guards=[{"type": "words", "timeout": 0.05}])
    reply = await ask(strict, prompt)
    assert (reply.status, reply.code) == (503 if prompt == "wait" else 500, "plugin_failed")
    assert "guard 'words'" in reply.error["message"]
    assert served.calls == []
    lenient = await house(served, guards=[{"type": "words", "timeout": 0.05, "on_error": "pass"}])
    assert (await ask(lenient, prompt)).status == 200
    assert prompts(served) == [prompt]


async def test_a_client_that_leaves_ends_the_wait_for_a_guard(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, guards=["words"])
    client = await gateway.client()
    client.send(gateway.post({"prompt": "wait"}, path="/v1/completions"))
    await until(lambda: bool(SEEN))
    client.close()
    await gateway.quiet()
    assert served.calls == []


async def test_a_whole_answer_is_changed_or_refused(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a")]}, guards=["answers"])
    served.says(b'{"choices": [{"text": "a secret"}]}')
    reply = await ask(gateway, "x", bearer("a"))
    assert (reply.status, reply.body) == (200, b'{"choices": [{"text": "a ******"}]}')
    served.says(b'{"choices": [{"text": "a bad one"}]}')
    reply = await ask(gateway, "x", bearer("a"))
    assert (reply.status, reply.code, reply.error["message"]) == (422, "bad_answer", "Not for a")
    served.says(b'{"error": "bad"}', 400)
    assert (await ask(gateway, "x", bearer("a"))).status == 400, "errors of engines pass"


def events(*texts: str) -> bytes:
    chunks = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in texts]
    chunks.append({"choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    return b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n"


def data_of(body: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: {")]


def text_of(body: bytes) -> str:
    return "".join(choice.get("text", "") for each in data_of(body) for choice in each.get("choices", ()))


@pytest.mark.parametrize("texts", [("a secret!",), ("a sec", "ret!"), tuple("a secret!"), ("a ", "secre", "t", "!")])
async def test_the_text_of_a_stream_is_changed_across_events(
    house: OpenGateway, engine: StartEngine, texts: tuple[str, ...]
) -> None:
    served = await engine()
    gateway = await house(served, guards=["texts"])
    served.streams(*(events(*texts)[start : start + 50] for start in range(0, len(events(*texts)), 50)), served.END)
    reply = await ask(gateway, "x", stream=True)
    assert text_of(reply.body) == "a ******!"
    assert reply.body.endswith(b"data: [DONE]\n\n")


async def test_a_stream_without_an_end_of_its_text_loses_nothing(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, guards=["texts"])
    served.streams(b'data: {"choices": [{"index": 0, "text": "all of it"}]}\n\ndata: [DONE]\n\n', served.END)
    assert text_of((await ask(gateway, "x", stream=True)).body) == "all of it"


def parts(*texts: str) -> bytes:
    """A chat whose content is a list of typed parts."""
    contents: list[Any] = [[{"type": "text", "text": text}] for text in texts]
    contents[0].insert(0, {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]})
    choices: list[Any] = [{"index": 0, "delta": {"content": each}, "finish_reason": None} for each in contents]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunks = [{"choices": [each]} for each in choices]
    return b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in chunks) + b"data: [DONE]\n\n"


async def test_a_guard_sees_texts_in_parts(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, guards=["texts"])
    served.streams(parts("a sec", "ret!"), served.END)
    reply = await gateway.ask(gateway.post({"messages": [], "stream": True}))
    deltas = [each["choices"][0]["delta"] for each in data_of(reply.body)]
    assert "".join(each.get("content") or "" for each in deltas) == "a ******!"
    assert [each["reasoning_content"] for each in deltas if "reasoning_content" in each] == ["hm"]


async def test_no_call_overtakes_the_text_before_it(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, guards=["texts"])
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    deltas: list[Any] = [{"content": "Let me see"}, {"tool_calls": [call]}, {}]
    finishes = (None, None, "tool_calls")
    chunks = [
        {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in zip(deltas, finishes, strict=True)
    ]
    served.streams(
        b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in chunks), b"data: [DONE]\n\n", served.END
    )
    body = {"max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hi"}]}
    told = data_of((await gateway.ask(gateway.post(body, path="/v1/messages"))).body)
    begun = [each["content_block"]["type"] for each in told if each["type"] == "content_block_start"]
    assert begun == ["text", "tool_use"]
    assert "".join(each["delta"].get("text", "") for each in told if "delta" in each) == "Let me see"


@pytest.mark.parametrize("last", ["", "t!"])
async def test_a_guard_sees_llama_servers_own_completions(house: OpenGateway, engine: StartEngine, last: str) -> None:
    served = await engine()
    gateway = await house(served, guards=["texts"])
    texts = ("a ", "secre", *(() if last else ("t!",)))
    chunks: list[Any] = [{"index": 0, "content": text, "tokens": [7], "stop": False} for text in texts]
    chunks.append({"index": 0, "content": last, "stop": True, "tokens_predicted": 3})
    served.streams(b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in chunks), served.END)
    reply = await gateway.ask(gateway.post({"prompt": "x", "stream": True}, path="/completion"))
    events = data_of(reply.body)
    assert "".join(each["content"] for each in events) == "a ******!"
    assert [each["stop"] for each in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["tokens_predicted"] == 3
    assert not any("tokens" in each for each in events)


@pytest.mark.parametrize("word", ["raise", "nonsense"])
async def test_a_text_at_which_a_guard_fails_is_refused_or_passes_whole(
    house: OpenGateway, engine: StartEngine, word: str
) -> None:
    served = await engine()
    strict, lenient = (
        await house(served, guards=["careless"]),
        await house(served, guards=[{"type": "careless", "on_error": "pass"}]),
    )
    served.streams(events("before ", word, " after"), served.END)
    reply = await ask(strict, "x", stream=True)
    assert b"plugin_failed" in reply.body
    assert b"guard 'careless'" in reply.body
    assert word not in text_of(reply.body)
    served.streams(events("before ", word, " after"), served.END)
    assert text_of((await ask(lenient, "x", stream=True)).body) == f"before {word} after"


@pytest.mark.parametrize("guard", ["slow", "wrong"])
async def test_a_guard_that_fails_at_a_whole_answer_refuses_or_lets_pass(
    house: OpenGateway, engine: StartEngine, guard: str
) -> None:
    served = await engine()
    strict = await house(served, guards=[{"type": guard, "timeout": 0.05}])
    reply = await ask(strict, "x")
    assert (reply.status, reply.code) == (503 if guard == "slow" else 500, "plugin_failed")
    assert f"guard '{guard}'" in reply.error["message"]
    lenient = await house(served, guards=[{"type": guard, "timeout": 0.05, "on_error": "pass"}])
    assert (await ask(lenient, "x")).status == 200


async def test_the_adapter_is_no_interceptor_to_be_named(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    with pytest.raises(ConfigError, match="'guards' is used with 'guards', and sees no request itself"):
        await house(served, interceptors=["guards"])


async def test_a_refused_text_ends_the_stream_with_an_error(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, guards=["texts"])
    served.streams(events("fine ", "so far, ", "stop", " never seen")[:-80], gate)
    reply = await ask(gateway, "x", stream=True)
    assert b"event: error" in reply.body
    assert b"That is enough" in reply.body
    assert b"never seen" not in reply.body
    assert b"[DONE]" not in reply.body
    await gateway.quiet()


async def recorded(gateway: ServedGateway) -> tuple[int, str | None]:
    """The status and the code of the request ``r1``, as its record has them once it has ended."""
    await gateway.until(lambda: not gateway.relay.live)
    found = msgspec.json.decode((await gateway.ask(gateway.get("/api/requests/r1"))).body)
    return found["status"], found["code"]


@pytest.mark.parametrize("later", [False, True])
async def test_nothing_finishes_past_a_refusal(house: OpenGateway, engine: StartEngine, later: bool) -> None:
    """The refused text is in the last read of the stream, or before it; either way the client learns of it."""
    served, gate = await engine(), asyncio.Event()
    gate.set()
    gateway = await house(served, guards=["texts"])
    whole = events("fine ", "so far, ", "stop", " never seen")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    served.plays(*([head + chunk(whole), gate, served.END] if later else [head + chunk(whole) + served.END]))
    reply = await ask(gateway, "x", b"x-request-id: r1", stream=True)
    assert reply.body.count(b"event: error") == 1
    assert b"That is enough" in reply.body
    assert b"never seen" not in reply.body
    assert b"[DONE]" not in reply.body
    assert await recorded(gateway) == (403, "stopped")


async def test_the_record_says_what_the_client_got(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, auth={"keys": [key("a", admin=True)]}, guards=["answers"])
    served.says(b'{"choices": [{"text": "a bad one"}]}')
    reply = await ask(gateway, "x", bearer("a"), b"x-request-id: r1")
    assert (reply.status, reply.code) == (422, "bad_answer")
    await gateway.until(lambda: not gateway.relay.live)
    page = await gateway.ask(gateway.get("/api/requests/r1", bearer("a")))
    found = msgspec.json.decode(page.body)
    assert (found["status"], found["code"], found["attempts"][0]["outcome"]) == (422, "bad_answer", "served")


async def test_tokens_do_not_spell_what_a_guard_hides(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, guards=["texts"])
    chunks = [
        {"choices": [{"index": 0, "text": text, "finish_reason": None, "logprobs": {"tokens": [text]}}]}
        for text in ("a ", "secret", "!")
    ]
    chunks.append({"choices": [{"index": 0, "text": "", "finish_reason": "stop", "logprobs": {"tokens": []}}]})
    served.streams(
        b"".join(b"data: %s\n\n" % json.dumps(each).encode() for each in chunks), b"data: [DONE]\n\n", served.END
    )
    reply = await ask(gateway, "x", stream=True, logprobs=1)
    assert text_of(reply.body) == "a ******!"
    assert b"secret" not in reply.body


async def test_without_guards_an_exchange_is_what_it_was(house: OpenGateway, engine: StartEngine) -> None:
    gateway = await house(await engine())
    assert gateway.relay.context.interception is None
    assert (await ask(gateway, "refuse-me")).status == 200


async def test_an_unknown_guard_is_refused_at_start(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    with pytest.raises(Exception, match="unknown guard 'wrods'"):
        await house(served, guards=["wrods"])


@pytest.mark.parametrize("body", [b'{"model":"\xff"}', b'{"a":' + b"[" * 20_000])
async def test_a_body_that_nobody_can_read_is_the_clients_fault(
    house: OpenGateway, engine: StartEngine, body: bytes
) -> None:
    gateway = await house(await engine(), guards=["words"])
    reply = await gateway.ask(gateway.post(body))
    assert (reply.status, reply.code) == (400, "invalid_request")
    assert [request.model for request, _ in SEEN] == [""]
