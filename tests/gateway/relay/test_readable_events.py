"""What passes the check of a stream, on either way, is what a client can read."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enginehouse.aio.write_batch import batched
from enginehouse.relay.answers.reply import FastPath
from enginehouse.relay.events.sse import is_whole, read_events
from enginehouse.relay.events.stream_check import StreamCheck
from enginehouse.relay.events.stream_form import stream_form
from enginehouse.telemetry.answer_meter import AnswerMeter
from tests.support.at_once import AT_ONCE
from tests.support.fake_transport import FakeTransport

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
PIECES = [
    b"data:", b"data: ", b"event: x\n", b"event: error\n", b"XXXXX", b": ", b"id: 1\n", b"\n", b"\n\n", b"\r", b"\r\n",
    b'{"a":', b'"t"', b"1}", b'{"n":1}', b',"x":1}', b'{"type":"ping"}', b"[DONE]", b"\xff", b"\xed\xa0\x80", b" ",
    "é".encode(), b"\xef\xbb\xbf", b"\\ud83d", b"[" * 2000, b'{"a":"\x01"}', b"NaN",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=8).map(b"".join)
STREAMS = st.lists(TEXTS.map(lambda text: text + b"\n\n"), min_size=1, max_size=3).map(b"".join)
UNREADABLE = [
    b'data: {"choices":[{"delta":{"content":"LOST"}}],\n"x":1}\n\n',
    b'data: {"a":\n\n"b":1}\n\n',
    b'data: {"a":\r"b"}\n\n',
    b'XXXXX{"n":1}\n\n',
    b'data: {"a":"\xff"}\n\n',
    b'event: x\nXXXXX{"type":"ping"}\n\n',
    b'event: error\ndata: {"type":"ping"}\n\n',
]


def is_readable(stream: bytes) -> bool:
    """Whether a client can read each event up to the last one, and ignores nothing but comments."""
    begin = 0
    try:
        for event in read_events(stream):
            stream[begin : event.end].decode()
            begin = event.end
            if event.data is None:
                assert event.is_known
            elif event.data.strip() == b"[DONE]":
                return True
            else:
                read = json.loads(event.data.decode())
                if not isinstance(read, dict):
                    return False
                if read.get("type") == "message_stop":
                    return True
    except (ValueError, RecursionError, AssertionError):
        return False
    return True


def takes(path: str, event: bytes) -> bool:
    """Whether ``event`` goes the short way."""
    form = stream_form(path)
    fast = FastPath(batched(FakeTransport(), AT_ONCE), AnswerMeter(stream=True), None, form)
    fast.is_open = True
    return fast.take(b"", event)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@given(stream=STREAMS)
@example(stream=b'data: {"n":1}\n\ndata: {"n":2}\n\n')
@example(stream=b"data: [DONE]\n\n\xff\n\n")
@example(stream=b'data: {"type":"message_stop"}\n\n\xff\n\n')
def test_what_passes_is_what_a_client_reads(path: str, stream: bytes) -> None:
    check = StreamCheck(stream_form(path))
    if check.look(stream) is None and not check.is_inside:
        assert is_readable(stream)
    if takes(path, stream):
        assert is_whole(stream)
        assert is_readable(stream)


@pytest.mark.parametrize("path", [CHAT, MESSAGES])
@pytest.mark.parametrize("stream", UNREADABLE)
def test_what_a_client_cannot_read_breaks_a_stream(path: str, stream: bytes) -> None:
    good = b'event: ping\ndata: {"type":"ping"}\n\n' if path == MESSAGES else b'data: {"n":1}\n\n'
    assert not takes(path, stream)
    assert StreamCheck(stream_form(path)).look(stream) is not None
    problem = StreamCheck(stream_form(path)).look(good + stream + good)
    assert problem is not None
    assert problem.good == len(good)


def test_plain_events_go_the_short_way() -> None:
    assert takes(CHAT, 'data: {"text":"é"}\n\n'.encode())
    assert takes(MESSAGES, b'event: ping\ndata: {"type":"ping"}\n\n')
