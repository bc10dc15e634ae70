"""An engine with two ranks that publishes over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from enginehouse.config.schema import KvEventSettings
from enginehouse.drivers import EngineClient
from enginehouse.engines.followed_caches import CacheView, FollowedCaches, Published
from enginehouse_kit.block_events import BlocksStored, CacheEvent, EventsComplete
from enginehouse_kit.drivers import OpenAICompatibleDriver
from tests.support.waiting import within

zmq = pytest.importorskip("zmq")
pytest.importorskip("zmq.asyncio")


class Ranks:
    """The sockets of an engine with two ranks, each of which has stored one block before anyone listened."""

    def __init__(self, stack: ExitStack) -> None:
        self._context = stack.enter_context(zmq.asyncio.Context())
        self._stack = stack
        self.events, _ = self._neighbours(zmq.PUB)
        self.replay, self._replays = self._neighbours(zmq.ROUTER)

    def _neighbours(self, kind: int) -> tuple[str, list[Any]]:
        """The address of the first of two sockets that are bound to ports one after the other."""
        while True:
            first, second = (self._stack.enter_context(self._context.socket(kind)) for _ in range(2))
            port = first.bind_to_random_port("tcp://127.0.0.1")
            try:
                second.bind(f"tcp://127.0.0.1:{port + 1}")
            except zmq.ZMQError:
                continue  # somebody else has the second port
            return f"tcp://127.0.0.1:{port}", [first, second]

    async def send_again(self, rank: int) -> None:
        """Answer each question for what was published."""
        socket = self._replays[rank]
        while True:
            client, _, number = await socket.recv_multipart()
            assert number == bytes(8)
            batch = msgspec.msgpack.encode([1.0, [["BlockStored", [rank], None, [1, 2], 2, None]], rank])
            await socket.send_multipart([client, b"", bytes(8), batch])
            await socket.send_multipart([client, b"", b"\xff" * 8, b""])


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    with ExitStack() as stack:
        yield Ranks(stack)


async def test_the_events_of_all_ranks_are_followed(ranks: Ranks) -> None:
    def no_client(backend: str) -> EngineClient:
        raise AssertionError(backend)

    caches, found, whole = FollowedCaches(no_client), list[CacheEvent](), asyncio.Event()

    def heard(backend: str, events: list[CacheEvent]) -> None:
        found.extend(events)
        stored = {each.hashes[0] for each in found if isinstance(each, BlocksStored)}
        if stored == {0, 1} and EventsComplete() in found:
            whole.set()

    view = CacheView(caches)
    view.listen(heard)
    caches.use(view)
    answering = [asyncio.create_task(ranks.send_again(rank)) for rank in (0, 1)]
    settings = KvEventSettings(endpoint=ranks.events, replay=ranks.replay, ranks=2)
    caches.follow({"a": Published(settings, OpenAICompatibleDriver())})
    try:
        await within(whole.wait())
        [figures] = caches.figures()
        assert (figures["backend"], figures["connected"], figures["exact"]) == ("a", True, True)
    finally:
        caches.close()
        for each in answering:
            each.cancel()
        await asyncio.gather(*answering, return_exceptions=True)
