"""Streams that end: each endpoint's last event, and what a client gets without it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from enginehouse.domain.errors import RequestError
from enginehouse.relay.events.stream_form import stream_form
from tests.support.raw_client import RawResponse
from tests.support.scripted_engine import END, Cut, StartEngine, Step, chunk
from tests.support.served_gateway import OpenGateway
from tests.support.stream_events import DONE, event

EVENT = event()
LAST = {
    "/v1/chat/completions": [DONE, b"data:[DONE]\n\n", b"data: [DONE]"],
    "/v1/completions": [DONE],
    "/v1/messages": [b'event: message_stop\ndata: {"type":"message_stop"}\n\n'],
    "/v1/responses": [
        b'event: response.completed\ndata: {"type":"response.completed","response":{}}\n\n',
        b'event: response.incomplete\ndata: {"type":"response.incomplete","response":{}}\n\n',
    ],
}
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
ENDS = ["chunked", "length", "close"]


def framed(events: bytes, how: str) -> tuple[Step, ...]:
    """The script of a stream that ends as whole as HTTP can tell."""
    if how == "chunked":
        return (HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunk(events) + END,)
    if how == "length":
        return (HEAD + b"content-length: %d\r\n\r\n" % len(events) + events,)
    return (HEAD + b"\r\n" + events, Cut.CLOSE)


def error_of(reply: RawResponse, before: bytes) -> Any:
    """The error event that is all of ``reply`` after ``before``; OpenAI's Responses have another one before it."""
    assert reply.whole
    assert reply.body.startswith(before)
    also, _, error = reply.body[len(before) :].rpartition(b"event: error\ndata: ")
    assert not also or also.startswith(b"event: response.failed\ndata: "), reply.body
    return msgspec.json.decode(error)


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize(("path", "last"), [(path, last) for path, lasts in LAST.items() for last in lasts])
async def test_a_stream_with_its_last_event_is_whole(
    house: OpenGateway, engine: StartEngine, path: str, last: bytes, how: str
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(*framed(EVENT + last, how))
    reply = await gateway.ask(gateway.post(path=path, stream=True))
    assert (reply.body, reply.whole) == (EVENT + last, True)
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(200, "match"): 1}


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("path", LAST)
@pytest.mark.parametrize("half", [b"", b"data: {", b"data: [DO", b": comment"])
async def test_a_stream_without_its_last_event_ends_with_an_error_event(
    house: OpenGateway, engine: StartEngine, path: str, how: str, half: bytes
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(*framed(EVENT + half, how))
    said = error_of(await gateway.ask(gateway.post(path=path, stream=True)), EVENT)
    assert "before the last event" in said["error"]["message"]
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(502, "match"): 1}
    assert "'a'" in str(gateway.fleet.backends()[0].last_error)


@pytest.mark.parametrize("path", LAST)
@pytest.mark.parametrize("data", [b"{nonsense", b"1", b"[]", b"hello", b"{}\ndata: {}", b"null"])
async def test_an_event_that_is_no_json_object_breaks_a_stream(
    house: OpenGateway, engine: StartEngine, path: str, data: bytes
) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(EVENT, b"data: " + data + b"\n\n", LAST[path][0], served.END)
    said = error_of(await gateway.ask(gateway.post(path=path, stream=True)), EVENT)
    assert "not a JSON object" in said["error"]["message"]
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(502, "match"): 1}
    assert "'a'" in str(gateway.fleet.backends()[0].last_error)


async def test_the_error_event_has_the_form_of_its_endpoint(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served, checks={"failures": 9})
    said = {}
    for path in LAST:
        served.plays(*framed(EVENT, "close"))
        said[path] = error_of(await gateway.ask(gateway.post(path=path, stream=True)), EVENT)
    assert said["/v1/chat/completions"]["error"]["code"] == "upstream_error"
    messages, responses = said["/v1/messages"], said["/v1/responses"]
    assert (messages["type"], messages["error"]["type"]) == ("error", "api_error")
    assert (responses["type"], responses["code"], responses["param"]) == ("error", "upstream_error", None)
    assert responses["message"] == responses["error"]["message"]


@pytest.mark.parametrize(
    ("path", "event"),
    [
        ("/v1/chat/completions", b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'),
        ("/v1/chat/completions", b'event: error\ndata: {"error": {"message": "out of memory"}}\n\n'),
        ("/v1/messages", b'event: error\ndata: {"type": "error", "error": {"message": "out of memory"}}\n\n'),
        ("/v1/responses", b'data: {"type": "error", "message": "out of memory"}\n\n'),
        (
            "/v1/responses",
            b'data: {"type": "response.failed", "response": {"error": {"message": "out of memory"}}}\n\n',
        ),
    ],
)
async def test_an_engines_own_error_event_is_a_failure(
    house: OpenGateway, engine: StartEngine, path: str, event: bytes
) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(EVENT, event, *LAST[path][:1], served.END)
    said = error_of(await gateway.ask(gateway.post(path=path, stream=True)), EVENT)
    assert "out of memory" in said["error"]["message"]
    assert gateway.relay.context.counters.series("a", "m").keys[""].requests == {(502, "match"): 1}
    assert "out of memory" in str(gateway.fleet.backends()[0].last_error)


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([b'data: {"error": {"message": "too odd", "code": 400}}\n\n'], 400),
        ([b'data: {"error": {"message": "too odd", "code": "422"}}\n\n'], 422),
        ([b'data: {"error": {"message": "too odd", "type": "not_supported_error"}}\n\n'], 501),
        ([b'error: {"code":400,"message":"too odd","type":"invalid_request_error"}\n\n'], 400),
        ([b'error: {"error": {"code":413,"message":"too odd"}}\n\n'], 413),
        ([b'{"error": {"code":400,"message":"too odd"}}\n\n'], 400),
        ([EVENT, b'error: {"code":400,"message":"too odd"}\n\n'], 400),
    ],
)
async def test_an_error_event_for_the_request_does_not_blame_the_engine(
    house: OpenGateway, engine: StartEngine, events: list[bytes], status: int
) -> None:
    served = await engine()
    gateway = await house(served)
    served.streams(*events, DONE, served.END)
    reply = await gateway.ask(gateway.post(stream=True))
    if len(events) == 1:
        error = msgspec.json.decode(reply.body)["error"]
        assert reply.status == status
    else:
        error = error_of(reply, EVENT)["error"]
    assert "too odd" in error["message"]
    assert (error["type"], error["details"]["error"]["message"]) == ("invalid_request_error", "too odd")
    assert gateway.fleet.backends()[0].last_error is None


async def test_events_of_several_lines_and_comments_pass(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    events = b': hello\n\nid: 1\ndata: {"n":\ndata: 1}\n\ndata:{"error": null}\n\n\ndata:\n\n' + DONE
    served.streams(events, served.END)
    reply = await gateway.ask(gateway.post(stream=True))
    assert (reply.body, reply.whole) == (events, True)


async def test_a_text_that_speaks_of_errors_passes(house: OpenGateway, engine: StartEngine) -> None:
    served = await engine()
    gateway = await house(served)
    events = b'data: {"choices":[{"delta":{"content":"an \\"error\\": {}"}, "error": {"x": 1}}]}\n\n' * 2 + DONE
    served.streams(events, served.END)
    assert (await gateway.ask(gateway.post(stream=True))).body == events


@pytest.mark.parametrize("end", [b"\n\r\n", b"\r\n\r", b"\r\r", b"\n\n", b"\r\n\r\n", b"\r\n\n", b"\n\r"])
async def test_an_event_with_any_line_ends_passes_at_once(house: OpenGateway, engine: StartEngine, end: bytes) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    event = b'data: {"n": 1}' + end
    served.streams(event, gate, DONE, served.END)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    assert await client.chunk() == event
    gate.set()
    assert [await client.chunk(), await client.chunk()] == [DONE, b""]


async def test_an_encoded_stream_passes_as_it_comes(house: OpenGateway, engine: StartEngine) -> None:
    served, gate = await engine(), asyncio.Event()
    gateway = await house(served)
    head = HEAD + b"content-encoding: gzip\r\ncontent-length: 8\r\n\r\n"
    served.plays(head + b"\x1f\x8bab", gate, b"cdef")
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    assert (await client.head()).header("content-encoding") == "gzip"
    assert await client.some() == b"\x1f\x8bab"
    gate.set()
    assert await client.some() == b"cdef"


async def test_an_encoded_stream_that_breaks_is_broken_off(house: OpenGateway, engine: StartEngine) -> None:
    served, seen = await engine(), asyncio.Event()
    gateway = await house(served)
    served.plays(HEAD + b"content-encoding: gzip\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n", seen, served.CLOSE)
    client = await gateway.client()
    client.send(gateway.post(stream=True))
    await client.head()
    assert await client.chunk() == b"ab"
    seen.set()
    rest = await client.rest()
    assert b"error" not in rest
    assert b"0\r\n\r\n" not in rest


@pytest.mark.parametrize(
    ("model", "status", "kind"), [("gone", 404, "not_found_error"), ("", 400, "invalid_request_error")]
)
async def test_errors_of_messages_have_anthropics_shape(
    house: OpenGateway, engine: StartEngine, model: str, status: int, kind: str
) -> None:
    gateway = await house(await engine())
    reply = await gateway.ask(gateway.post({"model": model, "messages": [], "max_tokens": 1}, path="/v1/messages"))
    said = msgspec.json.decode(reply.body)
    assert (reply.status, said["type"], said["error"]["type"]) == (status, "error", kind)
    assert said["error"]["message"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [(402, "billing_error"), (422, "invalid_request_error"), (529, "overloaded_error"), (502, "api_error")],
)
def test_every_status_has_the_type_that_anthropic_gives_it(status: int, kind: str) -> None:
    body = msgspec.json.decode(stream_form("/v1/messages").error_body(status, RequestError("no").envelope()))
    assert (body["type"], body["error"]["type"]) == ("error", kind)


@pytest.mark.parametrize("how", ENDS)
async def test_a_stream_of_another_endpoint_needs_no_last_event(
    house: OpenGateway, engine: StartEngine, how: str
) -> None:
    served = await engine()
    gateway = await house(served)
    served.plays(*framed(b"data: 1\n\n", how))
    reply = await gateway.ask(gateway.post(path="/v1/audio/speech", stream=True))
    assert (reply.body, reply.whole) == (b"data: 1\n\n", True)
