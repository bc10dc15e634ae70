"""Engines that are asked for the events that they published before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from enginehouse.config.schema import KvEventSettings
from enginehouse_kit import cache_events as follower
from enginehouse_kit.block_events import BlocksStored, CacheEvent, EventsLost
from enginehouse_kit.cache_events import Message, RankFollower, read_message
from tests.support.waiting import until, within

zmq = pytest.importorskip("zmq")
pytest.importorskip("zmq.asyncio")

END = b"\xff" * 8
MANY = 300


def stored(block: int) -> bytes:
    return msgspec.msgpack.encode([1.0, [["BlockStored", [block], None, [1, 2], 2, None]], 0])


class Publisher:
    """The two sockets of an engine that has published one message."""

    def __init__(self, stack: ExitStack) -> None:
        context = stack.enter_context(zmq.asyncio.Context())
        sockets = [stack.enter_context(context.socket(kind)) for kind in (zmq.PUB, zmq.ROUTER)]
        ports = [each.bind_to_random_port("tcp://127.0.0.1") for each in sockets]
        self.settings = KvEventSettings(f"tcp://127.0.0.1:{ports[0]}", f"tcp://127.0.0.1:{ports[1]}")
        self._replay: Any = sockets[1]

    async def answer(self, *before: bytes, count: int = 1) -> None:
        """Answer the next question; ``before`` are the parts before the number of a message."""
        client, _, number = await within(self._replay.recv_multipart())
        assert number == bytes(8)
        for place in range(count):
            await self._replay.send_multipart([client, *before, place.to_bytes(8, "big"), stored(place)])
        await self._replay.send_multipart([client, *before, END, b""])

    async def answer_all(self, *before: bytes) -> None:
        """Answer every question that comes."""
        while True:
            await self.answer(*before)

    async def ignore(self) -> None:
        """Read a question, and do not answer it."""
        await within(self._replay.recv_multipart())


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    with ExitStack() as stack:
        yield Publisher(stack)


class Heard:
    """What a follower tells of the engine's cache. ``stored`` is set after so many blocks."""

    def __init__(self, blocks: int = 1) -> None:
        self.blocks = blocks
        self.events: list[CacheEvent] = []
        self.stored = asyncio.Event()

    def __call__(self, events: Sequence[CacheEvent]) -> None:
        self.events += events
        if sum(isinstance(each, BlocksStored) for each in self.events) == self.blocks:
            self.stored.set()


@pytest.mark.parametrize("before", [(b"",), (b"", b"topic")], ids=["older", "vLLM 0.32"])
async def test_both_forms_of_messages_that_are_sent_again_are_read(
    publisher: Publisher, before: tuple[bytes, ...]
) -> None:
    heard = Heard()
    following = RankFollower("a", publisher.settings, heard)
    following.start()
    await publisher.answer(*before)
    await within(heard.stored.wait())
    assert following.stream.exact
    following.close()


async def test_an_engine_that_does_not_answer_is_asked_again_later(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "_REPLAY_S", 0.01)
    heard = Heard()
    following = RankFollower("a", publisher.settings, heard)
    following.start()
    await publisher.ignore()
    await publisher.ignore()
    assert not following.stream.exact
    monkeypatch.undo()
    answering = asyncio.create_task(publisher.answer_all(b""))
    await within(heard.stored.wait())
    assert following.stream.exact
    following.close()
    answering.cancel()


async def test_an_engine_that_has_answered_is_not_asked_again(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    following = RankFollower("a", publisher.settings, heard)
    monkeypatch.setattr(follower, "_REPLAY_S", 0.01)
    following.start()
    await publisher.ignore()
    await until(lambda: following._again)
    monkeypatch.undo()
    following.begin_anew()
    await publisher.answer(b"")
    await within(heard.stored.wait())
    assert following._again is None
    following.close()


async def test_an_engine_is_asked_once_it_knows_that_it_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it publishes between its answer and the subscription would be missing, and nobody would notice."""
    asked: list[RankFollower] = []
    monkeypatch.setattr(RankFollower, "begin_anew", asked.append)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port, heard = server.sockets[0].getsockname()[1], Heard()
    following = RankFollower("a", KvEventSettings(f"tcp://127.0.0.1:{port}", "tcp://127.0.0.1:1"), heard)
    following.start()
    await until(lambda: EventsLost() in heard.events)
    following.close()
    server.close()
    assert asked == []


async def test_many_messages_are_told_in_their_order_and_bit_by_bit(publisher: Publisher) -> None:
    heard, sizes = Heard(MANY), list[int]()

    def hear(events: Sequence[CacheEvent]) -> None:
        sizes.append(len(events))
        heard(events)

    following = RankFollower("a", publisher.settings, hear)
    following.start()
    await publisher.answer(b"", count=MANY)
    await within(heard.stored.wait())
    following.close()
    assert [each.hashes[0] for each in heard.events if isinstance(each, BlocksStored)] == [*range(MANY)]
    assert max(sizes) < MANY / 4


class Asking(RankFollower):
    """Its questions are answered by the test: each is the number that it begins with, and its answer."""

    def __init__(self, heard: Heard) -> None:
        super().__init__("a", KvEventSettings("tcp://nowhere", "tcp://nowhere"), heard)
        self.connected = True
        self.questions: list[tuple[int, asyncio.Future[Sequence[Message] | None]]] = []

    async def _replay(self, begin: int) -> Sequence[Message] | None:
        answer: asyncio.Future[Sequence[Message] | None] = asyncio.get_running_loop().create_future()
        self.questions.append((begin, answer))
        return await answer

    async def asked(self, number: int) -> None:
        await until(lambda: len(self.questions) == number)

    def answer(self, question: int, *numbers: int) -> None:
        self.questions[question][1].set_result(
            [read_message(each.to_bytes(8, "big"), stored(each)) for each in numbers]
        )


async def test_an_answer_that_comes_after_a_newer_question_is_not_taken_for_its_answer() -> None:
    heard = Heard(blocks=4)
    following = Asking(heard)
    following.begin_anew()
    await following.asked(1)
    following.answer(0, 0)
    await until(lambda: following.stream.exact)
    gap = asyncio.create_task(following._take((b"", (2).to_bytes(8, "big"), stored(2))))
    await following.asked(2)
    following.begin_anew()
    await following.asked(3)
    assert [begin for begin, _ in following.questions] == [0, 1, 0]
    following.answer(1, 1, 2)
    await within(gap)
    following.answer(2, 0, 1, 2)
    await within(heard.stored.wait())
    assert following.stream.exact
    assert following.stream.lost == 0


async def test_a_question_that_was_answered_otherwise_is_not_repeated() -> None:
    following = Asking(Heard())
    following.begin_anew()
    following.begin_anew()
    await following.asked(2)
    following.answer(1, 0)
    await until(lambda: following.stream.exact)
    following.questions[0][1].set_result(None)
    await until(lambda: not following._tasks._running)
    assert following._again is None
