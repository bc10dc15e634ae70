"""Answers without a stream that an engine spoils: another engine takes over, and the first one is found out."""

from __future__ import annotations

import asyncio
import json

import pytest

from enginehouse import Health
from tests.support.scripted_engine import END, Cut, ScriptedEngine, StartEngine, Step, chunk
from tests.support.served_gateway import OpenGateway, ServedGateway

GOOD = b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "a \\"{\\" b"}}]}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
SIZED = HEAD + b"content-length: %d\r\n\r\n" % len(GOOD)
PART = GOOD[:30]
REDIRECT = b"HTTP/1.1 302 X\r\nlocation: /login\r\ncontent-length: 0\r\n\r\n"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"
AS_IT_COMES = {"hold_answers": 0}

BAD: dict[str, tuple[Step, ...]] = {
    "cut": (SIZED + PART, Cut.CLOSE),
    "reset": (SIZED + PART, Cut.RESET),
    "cut between chunks": (CHUNKED, chunk(PART), Cut.CLOSE),
    "bad framing": (CHUNKED, chunk(PART), b"zz\r\n"),
    "until close, too short": (HEAD + b"connection: close\r\n\r\n" + PART, Cut.CLOSE),
    "clean end, too short": (CHUNKED + chunk(PART) + END,),
    "no JSON": (ScriptedEngine.answer(b"<html>out of order</html>"),),
    "a page": (ScriptedEngine.answer(b"<html>out of order</html>").replace(b"application/json", b"text/html"),),
    "no content type": (b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\nout of order",),
    "an error": (ScriptedEngine.answer(b'{"error": {"message": "CUDA error", "code": 500}}'),),
    "aborted": (ScriptedEngine.answer(GOOD.replace(b'"index"', b'"finish_reason": "abort", "index"')),),
    "empty": (ScriptedEngine.answer(b""),),
    "invalid UTF-8": (ScriptedEngine.answer(GOOD.replace(b"a", b"\xff", 1)),),
    "over its length": (ScriptedEngine.answer(GOOD) + b"and more",),
}


def health(gateway: ServedGateway) -> dict[str, Health]:
    return {backend.name: backend.health for backend in gateway.fleet.backends()}


@pytest.mark.parametrize("steps", BAD.values(), ids=BAD)
async def test_a_bad_answer_is_asked_elsewhere_unseen(
    house: OpenGateway, engine: StartEngine, steps: tuple[Step, ...]
) -> None:
    bad, good = await engine(), await engine()
    gateway = await house(bad, good, checks={"failures": 1}, routing={"strategy": "priority_only"})
    bad.otherwise(steps)
    good.says(GOOD)
    reply = await gateway.ask()
    assert (reply.status, reply.body, reply.whole) == (200, GOOD, True)
    assert reply.header("x-enginehouse-reason") == "retry"
    assert health(gateway) == {"a": Health.UNHEALTHY, "b": Health.HEALTHY}


@pytest.mark.parametrize("steps", BAD.values(), ids=BAD)
async def test_without_another_engine_the_client_gets_a_clean_error(
    house: OpenGateway, engine: StartEngine, steps: tuple[Step, ...]
) -> None:
    only = await engine()
    gateway = await house(only, checks={"failures": 3})
    only.otherwise(steps)
    codes = {"upstream_error", "upstream_invalid"}
    for _ in range(3):
        assert health(gateway) == {"a": Health.HEALTHY}
        reply = await gateway.ask()
        assert (reply.status, reply.whole) == (502, True)
        assert json.loads(reply.body)["error"]["code"] in codes
    assert health(gateway) == {"a": Health.UNHEALTHY}


async def test_what_is_no_json_has_a_code_of_its_own(house: OpenGateway, engine: StartEngine) -> None:
    only = await engine()
    gateway = await house(only)
    only.says(b"<html>out of order</html>")
    error = json.loads((await gateway.ask()).body)["error"]
    assert error["code"] == "upstream_invalid"
    assert error["message"] == "Backend 'a' sent an answer that is not JSON"


async def test_an_error_that_blames_the_request_is_not_retried(house: OpenGateway, engine: StartEngine) -> None:
    bad, good = await engine(), await engine()
    gateway = await house(bad, good, checks={"failures": 1}, routing={"strategy": "priority_only"})
    bad.says(b'{"error": {"message": "no such tool", "code": 400}}')
    reply = await gateway.ask()
    assert (reply.status, reply.code, good.calls) == (400, "invalid_request", [])
    assert "no such tool" in reply.error["message"]
    assert health(gateway)["a"] is Health.HEALTHY


async def test_an_error_of_null_is_none(house: OpenGateway, engine: StartEngine) -> None:
    only = await engine()
    gateway = await house(only)
    only.says(body := b'{"error": null, "choices": []}')
    assert (await gateway.ask()).body == body


async def test_other_endpoints_may_answer_with_anything(house: OpenGateway, engine: StartEngine) -> None:
    only = await engine()
    gateway = await house(only)
    only.plays(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nHello")
    assert (await gateway.ask(gateway.post(path="/v1/audio/speech"))).body == b"Hello"


async def test_an_answer_that_stalls_is_asked_elsewhere(house: OpenGateway, engine: StartEngine) -> None:
    bad, good = await engine(), await engine()
    checks, routing = {"failures": 1}, {"strategy": "priority_only"}
    gateway = await house(bad, good, checks=checks, routing=routing, timeouts={"stall": 60})
    bad.plays(SIZED + PART, asyncio.Event())
    good.says(GOOD)
    client = await gateway.client()
    client.send(gateway.post())
    await gateway.until(lambda: any(attempt.answered_at for attempt in gateway.attempts()))
    gateway.pass_time(61)
    assert (await client.reply()).body == GOOD
    assert health(gateway) == {"a": Health.UNHEALTHY, "b": Health.HEALTHY}


async def test_an_endless_answer_counts_against_its_engine(house: OpenGateway, engine: StartEngine) -> None:
    only = await engine()
    gateway = await house(only, checks={"failures": 1}, timeouts={"total": 0.05})
    only.plays(CHUNKED, chunk(b"["), asyncio.Event())
    reply = await gateway.ask()
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (504, "upstream_timeout")
    assert health(gateway) == {"a": Health.UNHEALTHY}


@pytest.mark.parametrize(
    "steps",
    [BAD["cut"], BAD["cut between chunks"], BAD["until close, too short"]],
    ids=["sized", "chunked", "until close"],
)
async def test_a_break_ends_the_connection_of_an_answer_that_passes_as_it_comes(
    house: OpenGateway, engine: StartEngine, steps: tuple[Step, ...]
) -> None:
    only = await engine()
    gateway = await house(only, server=AS_IT_COMES, checks={"failures": 3})
    only.otherwise(steps)
    for _ in range(3):
        assert health(gateway) == {"a": Health.HEALTHY}, "no head of a bad answer is a success"
        assert not (await gateway.ask()).whole
    assert health(gateway) == {"a": Health.UNHEALTHY}


async def test_a_large_answer_that_ends_inside_its_json_is_not_whole(house: OpenGateway, engine: StartEngine) -> None:
    only = await engine()
    gateway = await house(only, server={"hold_answers": 64})
    only.plays(CHUNKED, chunk(GOOD[:-20]), END)
    assert not (await gateway.ask()).whole


async def test_a_large_answer_passes_as_it_comes(house: OpenGateway, engine: StartEngine) -> None:
    only = await engine()
    gateway = await house(only, server={"hold_answers": 40})
    rest = asyncio.Event()
    only.plays(CHUNKED, chunk(GOOD[:30]), chunk(GOOD[30:50]), rest, chunk(GOOD[50:]), END)
    client = await gateway.client()
    client.send(gateway.post())
    await client.head()
    assert await client.chunk() == GOOD[:50]
    rest.set()
    assert await client.chunk() == GOOD[50:]


async def test_an_answer_in_pieces_comes_whole(house: OpenGateway, engine: StartEngine) -> None:
    only = await engine()
    gateway = await house(only)
    only.plays(CHUNKED, chunk(GOOD[:30]), chunk(GOOD[30:50]), chunk(GOOD[50:]), END)
    reply = await gateway.ask()
    assert (reply.body, reply.header("content-length")) == (GOOD, str(len(GOOD)))


@pytest.mark.parametrize("body", [b'{"logprob": -Infinity}', b'{"text": "\\ud83d"}', b"[1, 2]", b'"text"'])
async def test_what_a_client_can_read_passes(house: OpenGateway, engine: StartEngine, body: bytes) -> None:
    only = await engine()
    gateway = await house(only)
    only.says(body)
    assert (await gateway.ask()).body == body


@pytest.mark.parametrize(
    ("steps", "streamed"),
    [
        ((REDIRECT,), False),
        ((REDIRECT,), True),
        ((NO_CONTENT,), False),
        ((NO_CONTENT,), True),
        ((SIZED + GOOD,), True),
        ((CHUNKED + chunk(GOOD) + END,), True),
    ],
    ids=["redirect", "redirected stream", "no content", "no content streamed", "no stream", "no stream, in chunks"],
)
async def test_what_no_client_understands_is_asked_elsewhere(
    house: OpenGateway, engine: StartEngine, steps: tuple[Step, ...], streamed: bool
) -> None:
    bad, good = await engine(), await engine()
    gateway = await house(bad, good, checks={"failures": 1}, routing={"strategy": "priority_only"})
    bad.otherwise(steps)
    if streamed:
        good.streams(b"data: {}\n\n", b"data: [DONE]\n\n", good.END)
    else:
        good.says(GOOD)
    reply = await gateway.ask(gateway.post(stream=streamed))
    assert (reply.status, reply.whole, len(bad.calls), len(good.calls)) == (200, True, 1, 1)
    assert health(gateway) == {"a": Health.UNHEALTHY, "b": Health.HEALTHY}


@pytest.mark.parametrize(("code", "status"), [(501, 501), (400, 400)])
async def test_an_error_in_place_of_a_stream_blames_the_request_if_it_says_so(
    house: OpenGateway, engine: StartEngine, code: int, status: int
) -> None:
    only = await engine()
    gateway = await house(only, checks={"failures": 1})
    only.says(b'{"error": {"message": "cannot do that", "code": %d}}' % code)
    reply = await gateway.ask(gateway.post(stream=True))
    assert reply.status == status
    assert "cannot do that" in reply.error["message"]
    assert health(gateway) == {"a": Health.HEALTHY}


async def test_tokens_of_an_answer_that_nobody_gets_are_not_its_callers(
    house: OpenGateway, engine: StartEngine
) -> None:
    served = await engine()
    gateway = await house(served)
    served.says(GOOD[:-1] + b', "usage": {"prompt_tokens": 7, "completion_tokens": 9, "total_tokens": 16}}')
    reply = await gateway.ask(gateway.post(stream=True))
    assert reply.status == 502
    [record] = [each.record for each in gateway.relay.context.activity.newest_first()]
    assert (record.tokens_in, record.tokens_out) == (None, None)
