"""The bundled interceptors for agents between clients and engines."""

from __future__ import annotations

import asyncio
import json

import msgspec

from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until

DONE = b"data: [DONE]\n\n"


def event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return b"data: %s\n\n" % msgspec.json.encode({"id": "x", "choices": [choice]})


async def ask(gateway: ServedGateway, *lines: bytes, **body: object) -> RawResponse:
    return await gateway.ask(gateway.post({"messages": [{"role": "user", "content": "Hello"}], **body}, *lines))


async def test_two_hundred_duplicates_are_one_computation(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, interceptors=["join_duplicates"])
    served.streams(event("a"), gate, event("b"), event("", "stop"), DONE, served.END)
    asked = [asyncio.create_task(ask(gateway, stream=True)) for _ in range(100)]
    leaving = []
    for _ in range(20):
        client = await gateway.client()
        client.send(gateway.post({"messages": [{"role": "user", "content": "Hello"}], "stream": True}))
        leaving.append(client)
    await served.call()
    await until(lambda: len(gateway.relay.live) == 120)
    for client in leaving:
        client.close()
    await until(lambda: len(gateway.relay.live) <= 101)  # one of those that left may be the first
    gate.set()
    later = [await ask(gateway, stream=True) for _ in range(10)]
    replies = [*[await each for each in asked], *later]
    assert {(each.status, each.body) for each in replies} == {(200, event("a") + event("b") + event("", "stop") + DONE)}
    assert len(served.calls) == 1
    await gateway.quiet()
    assert gateway.relay.context.engine_memory.held == 0


async def test_an_answer_is_given_again_in_either_form(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, interceptors=["answers"])
    served.streams(event("a"), event("", "stop"), DONE, served.END)
    first = await ask(gateway, stream=True, temperature=0)
    assert (await ask(gateway, stream=True, temperature=0)).body == first.body
    served.says(b'{"choices": []}')
    first = await ask(gateway, temperature=0)
    again = await ask(gateway, temperature=0)
    assert (again.body, again.header("x-enginehouse-answered-by")) == (first.body, "answers")
    assert len(served.calls) == 2


async def test_a_model_is_loaded_and_unloaded_each_time_that_a_client_asks_for_that(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served, interceptors=["join_duplicates"])
    reasons = []
    for keep_alive in (60, 60, 0, 60):
        reply = await gateway.ask(gateway.post(path="/api/generate", keep_alive=keep_alive))
        reasons.append(json.loads(reply.body)["done_reason"])
    assert reasons == ["load", "load", "unload", "load"]
    assert len(served.calls) == 4


async def test_a_loop_frees_the_engine(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served, interceptors=["loops"])
    served.streams(*[event("I am sorry, but I cannot. ")] * 200, gate)
    reply = await ask(gateway, stream=True)
    assert b"runaway_loop" in reply.body
    await gateway.quiet()
    await until(served.calls[0].closed.is_set)


async def test_a_small_task_goes_to_the_small_model(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    plugins = {"parameters": {"small_tasks": {"model": "little"}}}
    aliases = {"aliases": {"little": "m"}}
    gateway = await house(served, interceptors=["small_tasks"], plugins=plugins, routing=aliases)
    reply = await ask(gateway, b"x-small-task: 1", model="big")
    assert reply.status == 200
    assert json.loads(served.calls[0].body)["model"] == "m"


async def test_a_call_that_leaked_reaches_the_client_as_a_call(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    plugins = {"parameters": {"tool_calls": {"models": ["m"]}}}
    gateway = await house(served, interceptors=["tool_calls"], plugins=plugins)
    said = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
    served.streams(*(event(said[at : at + 5]) for at in range(0, len(said), 5)), event("", "stop"), DONE, served.END)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    reply = await ask(gateway, stream=True, tools=tools)
    events = [json.loads(line[6:])["choices"][0] for line in reply.body.split(b"\n") if line.startswith(b"data: {")]
    assert [each["delta"]["tool_calls"][0]["function"]["name"] for each in events if "tool_calls" in each["delta"]] == [
        "f"
    ]
    assert events[-1]["finish_reason"] == "tool_calls"
    assert b"<tool_call>" not in reply.body
