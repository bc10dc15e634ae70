"""A connection to an engine, without a network."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.aio.clock import SYSTEM_CLOCK
from enginehouse.relay.heads import AnswerHead
from enginehouse.relay.upstream.connection import Connection
from tests.support.at_once import AT_ONCE
from tests.support.fake_transport import FakeTransport
from tests.support.h11_peer import Answer


class KeptAnswer:
    """A receiver that keeps its answer, or why there is none."""

    def __init__(self) -> None:
        self.head: AnswerHead | None = None
        self.body = b""
        self.complete = False
        self.broke = ""
        self.stale = False

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        assert not self.complete
        assert not self.broke
        assert head is None or self.head is None, "two heads"
        self.head = head or self.head
        assert self.head is not None, "a body without a head"
        self.body += body
        self.complete = complete

    def broken(self, why: str, *, stale: bool) -> None:
        assert not self.complete
        assert not self.broke
        self.broke = why
        self.stale = stale


class IgnoredAnswer:
    """A receiver that wants nothing of its answer."""

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None: ...
    def broken(self, why: str, *, stale: bool) -> None: ...


def hear(*segments: bytes, ends: bool = True, before: Sequence[bytes] = ()) -> Answer:
    """Read an engine's answer with the relay, in these segments. With ``ends``, the connection is then lost.

    ``before``: earlier answers on the connection, each whole and fit to keep it.
    """
    receiver, transport = KeptAnswer(), FakeTransport()
    idle: list[Connection] = []
    connection = Connection(keep=idle.append, remove=lambda _: idle.clear(), writes=AT_ONCE, now=SYSTEM_CLOCK.now)
    connection.connection_made(transport)
    for answer in before:
        connection.send(IgnoredAnswer(), b"request")
        connection.data_received(answer)
        idle.pop()
    connection.send(receiver, b"request")
    for segment in segments:
        if not transport.closing:
            connection.data_received(segment)
    kept = bool(idle)
    if ends:
        connection.connection_lost(None)
        assert receiver.complete or receiver.broke
    if not receiver.complete:
        return Answer(None, b"", kept)
    assert receiver.head is not None
    length = receiver.head.length
    assert length is None or length == len(receiver.body)
    return Answer(receiver.head.status, receiver.body, kept, stream=receiver.head.stream)
