"""Engines that are asked for the events that they published before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from enginehouse.config.kv_events import KvEventSettings
from enginehouse.domain.cache_events import BlocksStored, CacheEvent
from enginehouse.engines.kv_events import follower
from enginehouse.engines.kv_events.follower import CacheFollower
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
    following = CacheFollower("a", publisher.settings, heard)
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
    following = CacheFollower("a", publisher.settings, heard)
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
    following = CacheFollower("a", publisher.settings, heard)
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


async def test_many_messages_are_told_in_their_order_and_bit_by_bit(publisher: Publisher) -> None:
    heard, sizes = Heard(MANY), list[int]()

    def hear(events: Sequence[CacheEvent]) -> None:
        sizes.append(len(events))
        heard(events)

    following = CacheFollower("a", publisher.settings, hear)
    following.start()
    await publisher.answer(b"", count=MANY)
    await within(heard.stored.wait())
    following.close()
    assert [each.hashes[0] for each in heard.events if isinstance(each, BlocksStored)] == [*range(MANY)]
    assert max(sizes) < MANY / 4
