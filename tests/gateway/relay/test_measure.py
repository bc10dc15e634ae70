"""What a reply measures of an answer, however its bytes arrive."""

from __future__ import annotations

import pytest

from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.events.stream_form import stream_form
from enginehouse.relay.response_writer import ResponseWriter
from tests.support.stream_events import DONE, event

PATH = "/v1/chat/completions"
EVENTS = (event(0), event(1), event(2), DONE)


class _Client(ResponseWriter):
    """The side of a client that takes everything at once."""

    def __init__(self) -> None:
        self.received = b""

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        pass

    def write(self, chunk: bytes) -> None:
        self.received += chunk

    finish = write

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        pass


@pytest.mark.parametrize("at_once", range(len(EVENTS) + 1))
def test_a_stream_counts_the_same_however_much_of_it_arrives_at_once(at_once: int) -> None:
    reply = Reply(client := _Client(), stream_form(PATH))
    reply.begin(200, b"", None, stream=True)
    for each in EVENTS[: len(EVENTS) - at_once]:
        assert reply.write(each) is None
    assert reply.finish(b"".join(EVENTS[len(EVENTS) - at_once :])) is None
    sent = b"".join(EVENTS)
    assert client.received == sent
    assert reply.measure() == (len(sent), len(EVENTS) - 1, None)  # the last one has no token


@pytest.mark.parametrize("written", [True, False])
def test_the_good_part_of_a_broken_stream_counts(written: bool) -> None:
    reply = Reply(_Client(), stream_form(PATH))
    reply.begin(200, b"", None, stream=True)
    broken = EVENTS[0] + EVENTS[1] + b"data: no json\n\n"
    assert (reply.write(broken) if written else reply.finish(broken)) is not None
    assert reply.measure()[:2] == (len(EVENTS[0] + EVENTS[1]), 2)


def test_a_plain_answer_has_no_events() -> None:
    reply = Reply(_Client(), stream_form(PATH))
    reply.begin(200, b"", 2, stream=False)
    reply.finish(b"{}")
    assert reply.measure() == (2, 0, None)
