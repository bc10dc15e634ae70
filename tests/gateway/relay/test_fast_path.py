"""The short way of a stream's events makes no difference to the client, nor to what the gateway knows of the stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.aio.write_batch import BatchedTransport, batched
from enginehouse.domain.continuation import StreamTraits
from enginehouse.relay.answers.reply import FastPath, Reply
from enginehouse.relay.events.sse import LARGEST_HELD, framed
from enginehouse.relay.events.stream_check import BrokenStream
from enginehouse.relay.events.stream_form import stream_form
from enginehouse.relay.heads import AnswerHead
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse.relay.upstream.connection import Connection
from enginehouse_continuation.stream_history import StreamHistory
from enginehouse_kit.testing import FakeShare
from tests.support.at_once import AT_ONCE
from tests.support.fake_transport import FakeTransport
from tests.support.scripted_engine import StartEngine
from tests.support.served_gateway import OpenGateway
from tests.support.stream_events import DONE, event, long_event

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WITH_IDS = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"token_ids":[1,2]}]}\n\n'
ONLY_USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":1}}\n\n'
TYPED = b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n'
EVENTS: dict[str, list[bytes]] = {
    CHAT: [
        event(),
        WITH_IDS,
        ONLY_USAGE,
        DONE,
        b'data: {"n":1}\r\n\r\n',
        b": comment\n\n",
        b'event: x\ndata: {"n":2}\n\n',
        b'data: {"error":{"message":"no"}}\n\n',
        b"data: {broken\n\n",
        b'{"n":3}\n\n',
        b"\n\n",
        b'data: {"n":\ndata: 4}\n\n',
    ],
    MESSAGES: [TYPED, b'event: message_stop\ndata: {"type":"message_stop"}\n\n', b'data: {"type":"ping"}\n\n', event()],
}


class Wire(FakeTransport):
    """Calls ``on_write`` when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.on_write: Callable[[], None] = lambda: None

    def write(self, data: Any) -> None:
        super().write(data)
        self.on_write()


class Client(ResponseWriter):
    """The side of a client that gets each piece as a chunk, after the head. ``short``: chunks may pass it by."""

    def __init__(self, short: bool) -> None:
        self.end = Wire()
        self._transport = batched(self.end, AT_ONCE)
        self._head = b""
        self._short = short

    @property
    def received(self) -> bytes:
        """The content of all chunks."""
        content, rest = b"", self.end.written
        assert not rest or rest.startswith(HEAD)
        rest = rest[len(HEAD) :]
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            assert int(size, 16), "an empty chunk ends the answer"
            content += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
        return content

    def chunks_to(self) -> BatchedTransport | None:
        return self._transport if self._short else None

    def start(self, status: int, lines: bytes, length: int | None) -> None:
        assert length is None
        self._head = HEAD

    def write(self, chunk: bytes) -> None:
        head, self._head = self._head, b""
        self._transport.write(head + framed(chunk))

    def finish(self, chunk: bytes) -> None:
        if chunk:
            self.write(chunk)

    def unread(self) -> int:
        return 0

    def abort(self) -> None:
        raise AssertionError


class Relayed:
    """A stream from an engine's connection to its client: the receiver of the answer."""

    def __init__(self, path: str = CHAT, *, short: bool = True, added: Sequence[str] = (), kept: bool = True) -> None:
        self.client = Client(short)
        self.reply = Reply(self.client, stream_form(path))
        traits = StreamTraits(added=tuple(added))
        self.history = StreamHistory(path, b'{"model":"m"}', traits, FakeShare(), added=bool(added)) if kept else None
        self.problem: BrokenStream | None = None
        self.long_way = 0
        self.connection = Connection(lambda _: None, lambda _: None, AT_ONCE, SYSTEM_CLOCK.now)
        self.connection.connection_made(FakeTransport())
        self.connection.send(self, b"request")
        self.connection.data_received(HEAD)

    def arrive(self, *chunks: bytes) -> None:
        """Let ``chunks`` come together."""
        if self.problem is None:
            self.connection.data_received(b"".join(framed(chunk) for chunk in chunks))

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        if head is not None:
            self.reply.begin(200, b"", None, stream=True)
            self.reply.keep(self.history)
        if body:
            self.long_way += 1
            self.problem = self.reply.finish(body) if complete else self.reply.write(body)
            if not complete:
                self.connection.fast_path = self.reply.fast_path

    def broken(self, why: str, *, stale: bool) -> None:
        raise AssertionError

    @property
    def known(self) -> dict[str, Any]:
        """What the client got, and what the gateway knows of it."""
        counts = self.reply.measure()
        assert counts == self.reply.measure(), "nothing counts twice"
        facts: dict[str, Any] = {"received": self.client.received, "problem": self.problem, "counts": counts}
        if self.history is not None:
            self.history.read()
            progress = self.history.progress
            facts |= {"text": progress.text, "ids": progress.ids, "why": self.history.why}
            facts |= {"finish": self.history.finish, "ended": self.history.ended}
        return facts


@st.composite
def streams(draw: st.DrawFn) -> tuple[str, list[list[bytes]]]:
    """A path, and the chunks of a stream that come together."""
    path = draw(st.sampled_from(sorted(EVENTS)))
    usual = EVENTS[path][0]
    events = draw(st.lists(st.one_of(st.just(usual), st.sampled_from(EVENTS[path])), min_size=1, max_size=12))
    whole = b"".join(events)
    ends = {sum(map(len, events[: number + 1])) for number in range(len(events))}
    cuts = sorted((ends - {len(whole)}) ^ draw(st.sets(st.integers(1, len(whole) - 1), max_size=4)))
    chunks = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    together = draw(st.lists(st.sampled_from([1, 1, 1, 2, 3]), min_size=len(chunks), max_size=len(chunks)))
    groups = []
    for size in together:
        if chunks:
            groups.append(chunks[:size])
            chunks = chunks[size:]
    return path, groups


@given(streams(), st.sampled_from([(), ("token_ids",), ("usage",), ("token_ids", "usage")]), st.booleans())
@example((CHAT, [[event()], [b"event: x\n"], [event(2)]]), (), True)
@example((CHAT, [[event()], [WITH_IDS], [ONLY_USAGE], [DONE]]), ("token_ids", "usage"), True)
@example((CHAT, [[event()], [event(2)], [event(3) + event(4)], [DONE]]), (), False)
@example((CHAT, [[ONLY_USAGE], [event()], [event(2)], [ONLY_USAGE], [event(3)]]), ("usage",), True)
@example((CHAT, [[event()], [event(2) + b"event: x\n"], [event(3)], [event(4)]]), (), True)
@example((MESSAGES, [[TYPED], [TYPED], [TYPED + TYPED]]), (), False)
def test_the_short_way_makes_no_difference(
    stream: tuple[str, list[list[bytes]]], added: tuple[str, ...], kept: bool
) -> None:
    path, groups = stream
    short, long = (Relayed(path, short=each, added=added, kept=kept) for each in (True, False))
    for chunks in groups:
        short.arrive(*chunks)
        long.arrive(*chunks)
    assert short.known == long.known


def test_a_plain_event_that_comes_alone_takes_the_short_way() -> None:
    relayed = Relayed()
    for number in range(5):
        relayed.arrive(event(number))
    assert relayed.client.received == b"".join(event(number) for number in range(5))
    assert relayed.long_way == 1, "only the first one, which opens the fast_path"
    assert relayed.connection.pieces == 5


@pytest.mark.parametrize(
    "chunk", [DONE, b'data: {"error":{"message":"no"}}\n\n', b"data: {broken\n\n", event() + event(), b'data: {"n"']
)
def test_other_events_take_the_long_way(chunk: bytes) -> None:
    relayed = Relayed()
    relayed.arrive(event())
    relayed.arrive(chunk)
    assert relayed.long_way == 2


def test_the_passage_is_closed_inside_an_event() -> None:
    relayed = Relayed()
    relayed.arrive(event())
    relayed.arrive(b"event: x\n")
    relayed.arrive(event(2))
    assert relayed.client.received == event() + b"event: x\n" + event(2)
    relayed.arrive(event(3))
    assert relayed.long_way == 3, "it opens again behind the event"


def test_the_passage_is_closed_inside_an_event_that_is_too_large_to_be_held() -> None:
    relayed = Relayed()
    large = long_event(2 * LARGEST_HELD)
    relayed.arrive(event())
    relayed.arrive(large[:-100])
    assert (fast_path := relayed.reply.fast_path) is not None
    assert not fast_path.is_open
    relayed.arrive(large[-100:])
    assert fast_path.is_open
    assert relayed.client.received == event() + large


@pytest.mark.parametrize(("kept", "most"), [(True, 64 * 1024), (False, 16 * 1024)])
def test_what_has_passed_is_read_before_it_takes_much_memory(kept: bool, most: int) -> None:
    relayed, piece = Relayed(kept=kept), long_event(900)
    relayed.arrive(piece)
    sink = relayed.history or relayed.reply._meter
    assert sink is not None
    for _ in range(199):
        relayed.arrive(piece)
        assert sum(map(len, sink.pieces)) <= most + len(piece)
    assert relayed.reply.measure()[:2] == (200 * len(piece), 200)


@pytest.mark.parametrize("short", [True, False])
def test_a_piece_counts_before_it_is_sent_because_that_may_pause_the_answer(short: bool) -> None:
    relayed = Relayed(short=short)
    counted: list[int] = []
    relayed.client.end.on_write = lambda: counted.append(relayed.connection.pieces)
    for number in range(3):
        relayed.arrive(event(number))
    assert counted == [1, 2, 3]


def test_a_piece_of_which_the_client_gets_nothing_does_not_end_the_answer() -> None:
    relayed = Relayed(short=False, added=["usage"])
    relayed.arrive(event())
    relayed.arrive(ONLY_USAGE)
    relayed.arrive(event(2))
    assert relayed.client.received == event() + event(2)


def test_a_receiver_that_takes_an_answer_over_gets_every_event() -> None:
    relayed, other = Relayed(), Relayed()
    relayed.arrive(event())
    relayed.connection.redirect(other)
    relayed.arrive(event(2))
    assert other.long_way == 1


def test_the_next_answer_on_a_connection_does_not_take_the_passage_of_the_last_one() -> None:
    relayed = Relayed()
    relayed.arrive(event())
    assert relayed.connection.fast_path is not None
    relayed.connection.data_received(framed(DONE) + b"0\r\n\r\n")
    assert relayed.connection.fast_path is None


def test_a_passage_is_closed_until_its_stream_has_begun() -> None:
    end = FakeTransport()
    history = StreamHistory(CHAT, b"{}", StreamTraits(), FakeShare(), added=False)
    fast_path = FastPath(batched(end, AT_ONCE), history, None, stream_form(CHAT))
    assert not fast_path.take(framed(event()), event())
    assert not end.written


async def test_the_gateway_opens_the_short_way_with_the_first_event(house: OpenGateway, engine: StartEngine) -> None:
    served, more = await engine(), asyncio.Event()
    gateway = await house(served)
    served.streams(event(), more, event(2), DONE)
    client = await gateway.client()
    client.send(gateway.post(b'{"model":"m","stream":true}'))
    await client.head()
    assert await client.chunk() == event()
    [attempt] = gateway.attempts()
    assert attempt.connection is not None
    assert attempt.connection.fast_path is not None
    more.set()
    assert await client.chunk() == event(2)
