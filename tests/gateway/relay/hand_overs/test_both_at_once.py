"""Two engines get a request at the same time: one reads the prompt, and hands it over to the one that answers."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests.gateway.relay.test_removed_backends import Removes
from tests.support.fake_sglang import MODEL, WORDS, FakeSglang
from tests.support.fake_sglang_pair import FakeDecode, FakePrefill
from tests.support.model_engine import ModelEngine, StartModelEngine
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import Cut
from tests.support.seen_stream import SeenStream, read_stream
from tests.support.served_gateway import OpenGateway, ServedGateway
from tests.support.waiting import until

Pairs = tuple[FakePrefill, FakePrefill, FakeDecode, FakeDecode]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BODY: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "max_tokens": 4}
ROLES = {"a": "prefill", "b": "prefill", "y": "decode", "z": "decode"}
INFORMATION = b'{"disaggregation_mode": "prefill", "disaggregation_bootstrap_port": 8998}'


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    a, b = FakePrefill(), FakePrefill()
    y, z = FakeDecode(a, b), FakeDecode(a, b)
    with a, b, y, z:
        yield a, b, y, z


async def opened(house: OpenGateway, engines: dict[str, FakeSglang | ModelEngine]) -> ServedGateway:
    tables = {
        name: {"url": engine.url, "driver": "sglang", "role": ROLES[name], "models": [MODEL]}
        for name, engine in engines.items()
    }
    return await house(backends=tables, routing={"strategy": "llumnix_load"})


async def ask(gateway: ServedGateway, **more: object) -> RawResponse:
    return await gateway.ask(gateway.post({**BODY, **more}, path=CHAT))


async def stream(gateway: ServedGateway, path: str) -> SeenStream:
    asked = {**BODY, "stream": True} | ({} if path == CHAT else {"prompt": "Tell"})
    return read_stream((await gateway.ask(gateway.post(asked, path=path))).body)


async def over(gateway: ServedGateway) -> None:
    """Until both engines are done. The one that read the prompt answers in a thread, perhaps after the other one."""
    await until(lambda: not any(gateway.pending().values()))
    await gateway.quiet()


def text(reply: RawResponse) -> str:
    return str(msgspec.json.decode(reply.body)["choices"][0]["message"]["content"])


@pytest.mark.parametrize("stream", [False, True])
async def test_both_engines_get_the_same_request_and_meet(stream: bool, house: OpenGateway, pairs: Pairs) -> None:
    a, _, y, _ = pairs
    gateway = await opened(house, {"a": a, "y": y})
    reply = await ask(gateway, stream=stream)
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "y")
    assert reply.body.endswith(b"data: [DONE]\n\n") if stream else text(reply) == "".join(WORDS[:4])
    assert a.bodies == y.bodies
    [asked] = a.bodies
    assert (asked["bootstrap_host"], asked["bootstrap_port"]) == ("127.0.0.1", a.bootstrap.port)
    assert {**BODY, "stream": stream}.items() <= asked.items()
    [decision] = gateway.relay.context.decisions.last(9)
    assert (decision["prefill"], decision["chosen"]) == (f"{MODEL}@a", f"{MODEL}@y")
    await over(gateway)


async def test_each_request_has_a_room_of_its_own(house: OpenGateway, pairs: Pairs) -> None:
    a, _, y, _ = pairs
    gateway = await opened(house, {"a": a, "y": y})
    for _ in range(3):
        assert (await ask(gateway)).status == 200
    assert len({body["bootstrap_room"] for body in y.bodies}) == 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fault", ["gone", "aborts"])
async def test_another_engine_reads_the_prompt_of_one_that_fails(
    fault: str, stream: bool, house: OpenGateway, pairs: Pairs
) -> None:
    """The engine that was to answer would wait for five minutes."""
    a, b, y, _ = pairs
    a.gone, a.fails = fault == "gone", 500 if fault == "aborts" else 0
    gateway = await opened(house, {"a": a, "b": b, "y": y})
    reply = await ask(gateway, stream=stream)
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "y")
    assert reply.header("x-enginehouse-reason") == "retry"
    assert gateway.relay.context.counters.retries == {"a": 1}
    assert b.bodies[-1] in y.bodies  # of which the first may come last
    await over(gateway)


async def test_another_engine_answers_for_one_that_fails(house: OpenGateway, pairs: Pairs) -> None:
    a, _, y, z = pairs
    y.fails = 500
    gateway = await opened(house, {"a": a, "y": y, "z": z})
    reply = await ask(gateway)
    assert (reply.status, reply.header("x-enginehouse-backend")) == (200, "z")
    assert gateway.relay.context.counters.retries == {"y": 1}
    assert z.bodies[-1] in a.bodies  # of which the first may come last
    assert z.bodies[-1] != y.bodies[-1], "a new room"
    await over(gateway)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_the_reader_refuses_as_wrong_is_not_sent_again(
    stream: bool, house: OpenGateway, pairs: Pairs
) -> None:
    a, b, y, _ = pairs
    a.fails = 400
    gateway = await opened(house, {"a": a, "b": b, "y": y})
    reply = await ask(gateway, stream=stream)
    assert reply.status == 400
    assert b"Prefill transfer failed" in reply.body
    assert not b.bodies
    await over(gateway)


@pytest.mark.parametrize("left", ["a", "y"])
async def test_without_the_other_one_neither_is_asked(left: str, house: OpenGateway, pairs: Pairs) -> None:
    a, _, y, _ = pairs
    engine = a if left == "a" else y
    gateway = await opened(house, {left: engine})
    reply = await ask(gateway)
    assert reply.status == 503
    assert engine.bodies == []


async def test_a_server_that_reads_no_prompts_is_named(house: OpenGateway, pairs: Pairs) -> None:
    a, _, y, _ = pairs
    a.mode = "decode"
    gateway = await opened(house, {"a": a, "y": y})
    reply = await ask(gateway)
    assert reply.status == 502
    assert b"--disaggregation-mode decode" in reply.body
    assert a.bodies == y.bodies == []


async def test_the_reader_is_cancelled_when_the_client_leaves(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    reads, answers = await model_engine(), await model_engine()
    reads.scripts = [(reads.answer(INFORMATION),), ()]
    answers.scripts = [()]
    gateway = await opened(house, {"a": reads, "y": answers})
    client = await gateway.client()
    client.send(gateway.post(BODY, path=CHAT))
    await gateway.until(lambda: len(reads.calls) == 2 and len(answers.calls) == 1)
    client.close()
    await reads.calls[1].closed.wait()
    await answers.calls[0].closed.wait()
    await over(gateway)


async def test_the_reader_is_cancelled_when_the_other_one_breaks(
    house: OpenGateway, model_engine: StartModelEngine
) -> None:
    reads, answers = await model_engine(), await model_engine()
    reads.scripts = [(reads.answer(INFORMATION),), ()]
    answers.scripts = [(Cut.RESET,)]
    gateway = await opened(house, {"a": reads, "y": answers})
    reply = await ask(gateway)
    assert reply.status in (502, 503)
    await reads.calls[1].closed.wait()
    await over(gateway)


@pytest.mark.parametrize(("path", "way"), [(CHAT, "text"), (COMPLETIONS, "tokens")])
async def test_a_stream_goes_on_at_another_pair(path: str, way: str, house: OpenGateway, pairs: Pairs) -> None:
    a, _, y, z = pairs
    y.most_events = 3
    gateway = await opened(house, {"a": a, "y": y, "z": z})
    seen = await stream(gateway, path)
    assert (seen.text, seen.finish, seen.ended) == ("".join(WORDS[:4]), "length", True)
    assert gateway.relay.context.counters.continuations == {("z", "broken", way): 1}
    first, rest = a.bodies
    assert ([first], [rest]) == (y.bodies, z.bodies)
    assert rest["max_tokens"] == (2 if path == CHAT else 1), "a chat begins with an event without text"
    assert rest["bootstrap_port"] == a.bootstrap.port
    assert rest["bootstrap_room"] != first["bootstrap_room"]
    await over(gateway)


async def test_a_stream_goes_on_where_the_reader_is_gone_too(house: OpenGateway, pairs: Pairs) -> None:
    a, b, y, z = pairs
    y.most_events = 3
    y.before_break = lambda: setattr(a, "gone", True)
    gateway = await opened(house, {"a": a, "b": b, "y": y, "z": z})
    seen = await stream(gateway, CHAT)
    assert (seen.text, seen.ended) == ("".join(WORDS[:4]), True)
    assert b.bodies[0] in z.bodies  # of which the first may come last
    await over(gateway)


async def test_a_continuation_that_the_reader_refuses_is_asked_otherwise(house: OpenGateway, pairs: Pairs) -> None:
    a, _, y, z = pairs
    y.most_events, a.refused = 3, "continue_final_message"
    gateway = await opened(house, {"a": a, "y": y, "z": z})
    seen = await stream(gateway, CHAT)
    assert (seen.text, seen.ended) == ("".join(WORDS[:4]), True)
    assert gateway.relay.context.counters.continuations == {("z", "broken", "restart"): 1}
    await over(gateway)


async def test_without_another_pair_a_broken_stream_ends_with_an_error(house: OpenGateway, pairs: Pairs) -> None:
    a, _, y, _ = pairs
    y.most_events = 3
    gateway = await opened(house, {"a": a, "y": y})
    seen = await stream(gateway, CHAT)
    assert (seen.text, seen.ended) == ("".join(WORDS[:2]), False)
    assert "'y'" in str(seen.error)
    assert len(y.bodies) == 1
    await over(gateway)


async def test_another_engine_reads_the_prompt_of_one_that_a_reload_removes(house: OpenGateway, pairs: Pairs) -> None:
    a, b, y, _ = pairs
    gateway = await opened(house, {"a": a, "b": b, "y": y})
    Removes(gateway, "a", routed="y")
    assert text(await ask(gateway)) == "".join(WORDS[:4])
    assert (len(a.bodies), len(b.bodies)) == (0, 1)
    await over(gateway)


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_an_endpoint_without_pairs_is_refused(path: str, house: OpenGateway, pairs: Pairs) -> None:
    """SGLang's requests there have no bootstrap fields, so either server would refuse them."""
    a, _, y, _ = pairs
    gateway = await opened(house, {"a": a, "y": y})
    reply = await gateway.ask(gateway.post({**BODY, "input": "Tell"}, path=path))
    assert reply.status == 400
    assert b"cannot pair up for " + path.encode() in reply.body
    assert a.bodies == y.bodies == []


async def test_tokens_are_counted_by_either_server(house: OpenGateway, pairs: Pairs) -> None:
    a, _, y, _ = pairs
    gateway = await opened(house, {"a": a, "y": y})
    reply = await gateway.ask(gateway.post({"model": MODEL, "prompt": "Tell me"}, path="/tokenize"))
    assert msgspec.json.decode(reply.body)["count"] == 2
