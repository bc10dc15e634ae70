"""Streams whose engine breaks go on at another one."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from enginehouse.domain.replica import ReplicaState
from tests.support.launched_engine import Launch
from tests.support.model_engine import Break, StartModelEngine
from tests.support.scripted_engine import END, Cut, StartEngine, Step
from tests.support.seen_stream import SeenStream, read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.streaming_model import stream
from tests.support.waiting import settled, until

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
VLLM = {"driver": "vllm"}
FAULTS: dict[str, tuple[Step, ...]] = {
    "closed": (Cut.CLOSE,),
    "reset": (Cut.RESET,),
    "an error event": (b'event: error\ndata: {"error":{"message":"out of memory","code":500}}\n\n',),
    "no JSON": (b'data: {"id": "broken", "choices": [\n\n',),
    "half an event": (b'data: {"id": "bro', Cut.CLOSE),
    "no last event": (END,),
    "aborted": (b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n', b"data: [DONE]\n\n", END),
}


def body(path: str = CHAT, **more: Any) -> dict[str, Any]:
    prompt = {"messages": [{"role": "user", "content": "Tell"}]} if path == CHAT else {"prompt": "Tell"}
    return {"model": MODEL, **prompt, "stream": True, "max_tokens": 30, **more}


def unbroken(path: str, asked: dict[str, Any]) -> SeenStream:
    return read_stream(b"".join(stream(path, msgspec.json.encode(asked))))


async def ask(gateway: ServedGateway, path: str, asked: dict[str, Any]) -> SeenStream:
    reply = await gateway.ask(gateway.post(asked, path=path))
    assert (reply.status, reply.whole) == (200, True)
    return read_stream(reply.body)


def continued(gateway: ServedGateway) -> dict[tuple[str, str, str], int]:
    return dict(gateway.relay.context.counters.continuations)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_stream_goes_on_elsewhere_whatever_breaks_it(
    house: OpenGateway, model_engine: StartModelEngine, path: str, fault: str
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(9, *FAULTS[fault])]
    asked = body(path, stream_options={"include_usage": True}, stop=["zz"])
    seen, whole = await ask(gateway, path, asked), unbroken(path, asked)
    assert (seen.answer, seen.counts, len(seen.heads)) == (whole.answer, whole.counts, 1)
    assert continued(gateway) == {("b", "broken", "tokens"): 1}
    rest = other.asked()
    assert rest["max_tokens"] < 30
    assert len(rest["prompt"]) + rest["max_tokens"] == whole.counts["prompt_tokens"] + 30
    assert "'a'" in str(gateway.fleet.backends()[0].last_error)


@pytest.mark.parametrize("fault", FAULTS)
async def test_its_second_half_goes_on_elsewhere_whatever_breaks_that(
    house: OpenGateway, model_engine: StartModelEngine, fault: str
) -> None:
    engines = [await model_engine() for _ in range(3)]
    gateway = await house(*engines, backend=VLLM)
    for engine in engines[:2]:
        engine.breaks = [Break(5, *FAULTS[fault])]
    assert (await ask(gateway, CHAT, body())).answer == unbroken(CHAT, body()).answer
    assert continued(gateway) == {("b", "broken", "tokens"): 1, ("c", "broken", "tokens"): 1}


async def test_the_usage_comes_too_where_an_engine_tells_it_with_its_last_token(
    house: OpenGateway, model_engine: StartModelEngine, engine: StartEngine
) -> None:
    """As llama.cpp does in completions."""
    first, other = await model_engine(), await engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(5, Cut.CLOSE)]
    choice = {"index": 0, "text": "z", "token_ids": [1], "finish_reason": "length"}
    head = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    usage = {"prompt_tokens": 20, "completion_tokens": 1, "total_tokens": 21}
    last = b"data: " + msgspec.json.encode({**head, "usage": usage}) + b"\n\n"
    other.streams(last, b"data: [DONE]\n\n", other.END)
    seen = await ask(gateway, COMPLETIONS, body(COMPLETIONS, stream_options={"include_usage": True}))
    assert (seen.finish, seen.ended) == ("length", True)
    assert seen.counts["completion_tokens"] == 1 + int(msgspec.json.decode(first.calls[0].body)["max_tokens"]) - int(
        msgspec.json.decode((await other.call()).body)["max_tokens"]
    )


async def test_a_stream_goes_on_where_the_alias_that_its_client_named_may_be_served(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, lower, other = [await model_engine() for _ in range(3)]
    backends = {
        name: {**VLLM, "url": engine.url, "models": [MODEL], "tier": tier}
        for name, engine, tier in (("a", first, 3), ("b", lower, 1), ("c", other, 2))
    }
    routing = {"aliases": {"best": MODEL}, "least_tier": {"best": 2}, "strategy": "priority_only"}
    gateway = await house(backends=backends, routing=routing)
    first.breaks = [Break(5, Cut.CLOSE)]
    reply = await gateway.ask(gateway.post({**body(), "model": "best"}))
    assert read_stream(reply.body).answer == unbroken(CHAT, body()).answer
    assert continued(gateway) == {("c", "broken", "tokens"): 1}, "b may not serve it"


async def test_a_stalled_stream_goes_on_elsewhere(house: OpenGateway, model_engine: StartModelEngine) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(5, asyncio.Event())]
    client = await gateway.client()
    client.send(gateway.post(body()))
    call = await first.call()
    await client.head()
    wire = b""
    while wire.count(b"data: ") < 5:
        wire += await client.chunk()
    gateway.pass_time(121)
    while not wire.endswith(b"[DONE]\n\n"):
        wire += await client.chunk()
    assert read_stream(wire).answer == unbroken(CHAT, body()).answer
    await call.closed.wait()


async def test_a_stream_goes_on_as_often_as_the_configuration_says(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    engines = [await model_engine() for _ in range(6)]
    gateway = await house(*engines, backend=VLLM, routing={"max_continuations": 3})
    for engine in engines:
        engine.breaks = [Break(3, Cut.CLOSE)] * 9
    seen = await ask(gateway, CHAT, body())
    assert sum(len(engine.calls) for engine in engines) == 4
    assert not seen.ended
    assert seen.error["code"] == "upstream_error"
    assert unbroken(CHAT, body()).text.startswith(seen.text)


@pytest.mark.parametrize("refused", ["prompt", "everything"])
async def test_what_an_engine_refuses_is_asked_in_another_way(
    house: OpenGateway, model_engine: StartModelEngine, refused: str
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(6, Cut.CLOSE)]
    other.refuses = {"prompt", *({"continue_final_message"} if refused == "everything" else ())}
    seen = await ask(gateway, CHAT, body())
    ways = [set(msgspec.json.decode(call.body)) & {"prompt", "continue_final_message"} for call in other.calls]
    if refused == "prompt":
        assert ways == [{"prompt"}, {"continue_final_message"}]
        assert continued(gateway) == {("b", "broken", "text"): 1}
        assert seen.ended
    else:
        assert ways == [{"prompt"}, {"continue_final_message"}, set()]
        assert continued(gateway) == {("b", "broken", "restart"): 1}
        assert seen.answer == unbroken(CHAT, body()).answer


async def test_an_engine_that_refuses_every_way_is_named_with_a_reason(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks, other.refuses = [Break(6, Cut.CLOSE)], {"prompt", "messages"}
    seen = await ask(gateway, CHAT, body())
    assert seen.error["message"].endswith("Backend 'b' cannot continue it: every way failed")


async def test_a_request_that_cannot_be_continued_is_asked_anew(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(6, Cut.CLOSE)]
    asked = body(seed=7, stream_options={"include_usage": True})
    seen, whole = await ask(gateway, CHAT, asked), unbroken(CHAT, asked)
    assert (seen.answer, seen.counts) == (whole.answer, whole.counts)
    assert other.asked()["messages"] == asked["messages"]
    assert continued(gateway) == {("b", "broken", "restart"): 1}


async def test_another_answer_is_not_passed_on(house: OpenGateway, model_engine: StartModelEngine) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(
        first,
        other,
        backends={"b": {"url": other.url, "models": [MODEL], "driver": "vllm"}},
        backend=VLLM,
        routing={"broken_stream": "restart"},
    )
    first.breaks = [Break(6, Cut.CLOSE)]
    other.breaks = [Break(1, b'data: {"choices":[{"index":0,"delta":{"content":"Else"},"finish_reason":null}]}\n\n')]
    seen = await ask(gateway, CHAT, body())
    assert seen.error["code"] == "upstream_error"
    assert "cannot continue" in seen.error["message"]
    assert unbroken(CHAT, body()).text.startswith(seen.text)


@pytest.mark.parametrize(
    "rule", [{"routing": {"broken_stream": "error"}}, {"models": {MODEL: {"broken_stream": "error"}}}]
)
async def test_a_broken_stream_may_just_end_with_an_error(
    house: OpenGateway, model_engine: StartModelEngine, rule: dict[str, Any]
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM, **rule)
    first.breaks = [Break(6, Cut.CLOSE)]
    seen = await ask(gateway, CHAT, body())
    assert seen.error["code"] == "upstream_error"
    assert other.calls == []
    assert first.asked() == body(), "nothing is added"


@pytest.mark.parametrize("usage", [True, False])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_an_answer_that_is_whole_but_for_its_end_is_ended_here(
    house: OpenGateway, model_engine: StartModelEngine, path: str, usage: bool
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    asked = body(path, stream_options={"include_usage": usage})
    events = len(list(stream(path, msgspec.json.encode(asked | {"return_token_ids": True}))))
    first.breaks = [Break(events - 1 - usage, Cut.CLOSE)]
    seen, whole = await ask(gateway, path, asked), unbroken(path, asked)
    assert (seen.answer, seen.counts) == (whole.answer, whole.counts)
    assert other.calls == []


async def test_an_engine_that_breaks_before_its_first_event_is_replaced(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks = [Break(0, b": wait\n\n", Cut.CLOSE)]
    assert (await ask(gateway, CHAT, body())).answer == unbroken(CHAT, body()).answer


@pytest.mark.parametrize("more", [{"n": 2}, {"logprobs": True}, {"tools": [{"type": "function"}]}], ids=str)
async def test_a_stream_of_which_only_roles_came_is_asked_anew(
    house: OpenGateway, engine: StartEngine, more: dict[str, Any]
) -> None:
    first, other = await engine(), await engine()
    gateway = await house(first, other, backend=VLLM)
    first.streams(chunk("x", 0, role="assistant", content=""), Cut.CLOSE)
    said = [chunk("y", index, content="Hi", logprobs={"content": [{"token": "Hi"}]}) for index in (0, 1)]
    ends = [chunk("y", index, finish="stop") for index in (0, 1)]
    roles = [chunk("y", index, role="assistant", content="") for index in (0, 1)]
    other.streams(*roles, *said, *ends, b"data: [DONE]\n\n", other.END)
    reply = await gateway.ask(gateway.post(body(**more)))
    events = [msgspec.json.decode(line[6:]) for line in reply.body.split(b"\n\n")[:-2]]
    assert {event["id"] for event in events} == {"x"}
    choices = [choice for event in events for choice in event["choices"]]
    for index in (0, 1):
        mine = [choice for choice in choices if choice["index"] == index]
        assert [each["delta"].get("role") for each in mine if "role" in each["delta"]] == ["assistant"]
        assert "".join(each["delta"].get("content") or "" for each in mine) == "Hi"
        assert [each["logprobs"] for each in mine if each.get("logprobs")] == [{"content": [{"token": "Hi"}]}]
        assert mine[-1]["finish_reason"] == "stop"
    assert reply.body.endswith(b"data: [DONE]\n\n")
    assert continued(gateway) == {("b", "broken", "restart"): 1}
    sent = [msgspec.json.decode((await each.call()).body) for each in (first, other)]
    assert sent[0] == sent[1]


def chunk(id: str, index: int, *, finish: str | None = None, logprobs: object = None, **delta: str) -> bytes:
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
    fields = {"id": id, "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + msgspec.json.encode(fields) + b"\n\n"


@pytest.mark.parametrize("limit", [None, 7])
async def test_a_text_goes_on_where_nobody_counts_its_tokens(
    house: OpenGateway, engine: StartEngine, limit: int | None
) -> None:
    first, other = await engine(), await engine()
    gateway = await house(first, other, plugins={"parameters": {"openai": {"continues": "text"}}})
    first.streams(chunk("x", 0, content="One "), chunk("x", 0, content="two "), Cut.CLOSE)
    other.streams(chunk("y", 0, content="three"), chunk("y", 0, finish="stop"), b"data: [DONE]\n\n", other.END)
    seen = await ask(gateway, CHAT, body(max_tokens=limit))
    assert (seen.text, seen.finish, seen.ended) == ("One two three", "stop", True)
    asked = msgspec.json.decode((await other.call()).body)
    assert asked["messages"][-1] == {"role": "assistant", "content": "One two "}
    assert asked["max_tokens"] == (None if limit is None else limit - 2)
    assert continued(gateway) == {("b", "broken", "text"): 1}


async def test_clients_never_see_what_was_added(house: OpenGateway, model_engine: StartModelEngine) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    reply = await gateway.ask(gateway.post(body()))
    assert first.asked()["return_token_ids"] is True
    assert b"token_ids" not in reply.body
    assert read_stream(reply.body).answer == unbroken(CHAT, body()).answer


async def test_nothing_is_added_where_no_other_engine_could_go_on(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    alone = await model_engine()
    gateway = await house(alone, backend=VLLM)
    await gateway.ask(gateway.post(body()))
    assert alone.asked() == body()
    await gateway.ask(gateway.post(body(stream=False)))
    assert alone.asked() == body(stream=False)


async def test_a_client_that_leaves_meanwhile_frees_everything(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks, other.breaks = [Break(4, Cut.CLOSE)], [Break(0, asyncio.Event())]
    client = await gateway.client()
    client.send(gateway.post(body()))
    call = await other.call()
    client.reset()
    await call.closed.wait()
    await gateway.quiet()
    assert gateway.pending() == {"a": 0, "b": 0}
    assert continued(gateway) == {}, "a stream that its client left counts as continued"
    assert (await gateway.ask(gateway.post(body()))).status == 200


async def test_a_connection_serves_on_after_a_continued_stream(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM, routing={"strategy": "priority_only"})
    client = await gateway.client()
    for number in range(3):
        first.breaks, other.breaks = [Break(number + 2, Cut.CLOSE)], []
        gateway.fleet.succeeded("a")
        reply = await client.ask(gateway.post(body()))
        assert read_stream(reply.body).answer == unbroken(CHAT, body()).answer
    assert sum(continued(gateway).values()) == 3


async def test_an_engine_that_exits_is_launched_again_for_its_stream(
    house: OpenGateway, model_engine: StartModelEngine, launched: Launch
) -> None:
    alone = await model_engine()
    gateway = await house(alone, backend=VLLM)
    managed = launched(gateway, "a", concurrency=4)
    managed.state = ReplicaState.READY
    exits = asyncio.Event()
    alone.breaks = [Break(4, exits, Cut.CLOSE)]
    client = await gateway.client()
    client.send(gateway.post(body()))
    await client.head()
    wire = await client.chunk()
    exits.set()
    managed.exits()
    await managed.gets_ready()
    while not wire.endswith(b"[DONE]\n\n"):
        wire += await client.chunk()
    assert read_stream(wire).answer == unbroken(CHAT, body()).answer
    assert managed.starts == 1


async def test_a_refusal_in_pieces_is_no_part_of_the_answer_to_the_next_way(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    first, other = await model_engine(), await model_engine()
    gateway = await house(first, other, backend=VLLM)
    first.breaks, gate = [Break(6, Cut.CLOSE)], asyncio.Event()
    head = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\r\n"
    other.scripts = [(head + b'{"error"', gate, b': "no"}')]
    asking = asyncio.create_task(ask(gateway, CHAT, body()))
    call = await other.call()
    await until(lambda: call.sent)
    memory = gateway.relay.context.engine_memory
    await settled(lambda: memory.held)
    gate.set()
    assert (await asking).ended
    assert continued(gateway) == {("b", "broken", "text"): 1}
