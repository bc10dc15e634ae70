"""The check of a stream, piece by piece."""

from __future__ import annotations

from itertools import accumulate

import msgspec
import pytest

from enginehouse.relay.events.sse import LARGEST_HELD, whole_events
from enginehouse.relay.events.stream_check import BrokenStream, StreamCheck
from enginehouse.relay.events.stream_form import stream_form

CHAT = "/v1/chat/completions"
PLAIN = {
    CHAT: b'data: {"choices":[{"delta":{"content":"an \\"error\\": {}"}}],"error":null}\n\n',
    "/v1/messages": b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"a"}}\n\n',
    "/v1/responses": b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"a"}\n\n',
}
LAST = {
    CHAT: b"data: [DONE]\n\n",
    "/v1/messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "/v1/responses": b'event: response.completed\ndata: {"type":"response.completed","response":{}}\n\n',
}
ERRORS = {
    CHAT: b'data: {"error":{"message":"boom"}}\n\n',
    "/v1/messages": b'event: error\ndata: {"type":"error","error":{"message":"boom"}}\n\n',
    "/v1/responses": b'event: error\ndata: {"type":"error","message":"boom"}\n\n',
}


def check(path: str = CHAT) -> StreamCheck:
    return StreamCheck(stream_form(path))


@pytest.mark.parametrize("path", PLAIN)
@pytest.mark.parametrize("count", [1, 2, 7])
def test_plain_events_pass_whether_they_come_one_by_one_or_together(path: str, count: int) -> None:
    stream = check(path)
    assert stream.look(PLAIN[path] * count) is None
    assert not stream.ended
    assert stream.look(PLAIN[path] + LAST[path]) is None
    assert stream.ended


@pytest.mark.parametrize("path", PLAIN)
@pytest.mark.parametrize("before", [0, 1, 7])
def test_an_error_is_found_among_plain_events(path: str, before: int) -> None:
    problem = check(path).look(PLAIN[path] * before + ERRORS[path] + LAST[path])
    assert problem is not None
    assert "boom" in problem.why
    assert problem.good == before * len(PLAIN[path])


def test_an_event_named_error_is_one_whatever_it_says() -> None:
    problem = check().look(PLAIN[CHAT] + b'event: error\ndata: {"message":"boom"}\n\n')
    assert problem == BrokenStream("broke its stream off with an error: boom", len(PLAIN[CHAT]), {"message": "boom"})


def test_a_failed_response_tells_its_own_error() -> None:
    error = {"code": 400, "message": "boom"}
    failed = msgspec.json.encode({"type": "response.failed", "response": {"error": error}})
    problem = check("/v1/responses").look(b"event: response.failed\ndata: " + failed + b"\n\n")
    assert problem == BrokenStream("broke its stream off with an error: boom", 0, error)
    assert problem.blamed == 400


def ending(reason: str) -> bytes:
    choice = {"index": 0, "delta": {}, "finish_reason": reason}
    return b"data: %s\n\n" % msgspec.json.encode({"choices": [choice]})


@pytest.mark.parametrize("reason", ["abort", "error", "insufficient_system_resource"])
@pytest.mark.parametrize("before", [0, 1, 7])
def test_a_choice_that_its_engine_gives_up_is_not_whole(reason: str, before: int) -> None:
    problem = check().look(PLAIN[CHAT] * before + ending(reason) + LAST[CHAT])
    assert problem == BrokenStream(f"broke its stream off: finish_reason '{reason}'", before * len(PLAIN[CHAT]))


@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls", "", "eos_token"])
def test_a_choice_that_ends_with_another_reason_is_whole(reason: str) -> None:
    stream = check()
    assert stream.look(PLAIN[CHAT] + ending(reason)) is None
    assert stream.look(LAST[CHAT]) is None
    assert stream.ended


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("text", [b'data: {"n":%sdata: 1}', b'id: 1%sdata:{"n": 1}', b": hello%s: again"])
def test_any_spelling_of_an_event_is_read(text: bytes, end: bytes) -> None:
    stream = check()
    assert stream.look(text % end[: len(end) // 2] + end) is None
    assert stream.look(PLAIN[CHAT] + b"data:[DONE]" + end) is None
    assert stream.ended


@pytest.mark.parametrize("size", [1000, 2 * LARGEST_HELD + 3])
def test_a_large_last_event_is_known_by_its_name(size: int) -> None:
    response = msgspec.json.encode({"type": "response.completed", "response": {"text": "x" * size}})
    stream = check("/v1/responses")
    text = PLAIN["/v1/responses"] + b"event: response.completed\ndata: " + response + b"\n\n"
    held = b""
    for cut in accumulate([0] + [100_000] * (len(text) // 100_000 + 1)):
        piece, held = whole_events(held + text[cut : cut + 100_000])
        assert not piece or stream.look(piece) is None
    assert held == b""
    assert stream.ended


def test_the_blank_line_after_a_large_event_may_come_in_two_pieces() -> None:
    stream = check()
    piece, held = whole_events(b'data: {"text": "' + b"x" * LARGEST_HELD + b'"}\n')
    assert (stream.look(piece), held) == (None, b"\n")
    piece, held = whole_events(held + b"\n" + LAST[CHAT])
    assert (stream.look(piece), held) == (None, b"")
    assert stream.ended
