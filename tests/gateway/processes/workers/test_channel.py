"""Calls between two processes, over a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import pytest

from enginehouse.domain.errors import RequestError, ShuttingDown
from enginehouse.processes.workers.channel import Channel
from enginehouse.processes.workers.messages import BackendPlace
from enginehouse.processes.workers.worker import WorkerChannel
from tests.support.waiting import until


class Side(Protocol):
    """What one side may ask of the other."""

    def note(self, place: BackendPlace, sizes: tuple[int, ...]) -> None:
        """Keep these."""

    def nothing(self) -> None:
        """Take no argument."""

    async def find(self, name: str) -> BackendPlace:
        """The place of that name. Raises ``RequestError``."""


class Part(Side):
    def __init__(self) -> None:
        self.noted: list[object] = []
        self.blocked = asyncio.Event()

    def note(self, place: BackendPlace, sizes: tuple[int, ...]) -> None:
        self.noted.append((place, sizes))

    def nothing(self) -> None:
        self.noted.append(None)

    async def find(self, name: str) -> BackendPlace:
        if name == "slow":
            await self.blocked.wait()
        if name == "unknown":
            raise RequestError("there is none", param="name")
        if name == "defect":
            raise ArithmeticError
        return BackendPlace(name)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Channel, Channel, Part]]:
    """A channel, the other end of it, and what serves there."""
    part, lost = Part(), asyncio.Event()
    near, far = Channel(lost.set), Channel(lost.set)
    far.attach(part)
    for channel, end in zip((near, far), socket.socketpair(), strict=True):
        await channel.open(end)
    yield near, far, part
    near.close()
    far.close()
    await lost.wait()


async def test_calls_arrive_in_order_with_their_types() -> None:
    async with connected() as (near, _, part):
        near.send(Side.note, BackendPlace("a", queue="own"), (1, 2))
        near.send(Side.nothing)
        await until(lambda: len(part.noted) == 2)
        assert part.noted == [(BackendPlace("a", queue="own"), (1, 2)), None]


async def test_a_question_has_the_answer_or_the_error_of_the_other_side() -> None:
    async with connected() as (near, _, _part):
        assert await near.ask(Side.find, "b") == BackendPlace("b")
        with pytest.raises(RequestError, match="there is none") as refused:
            await near.ask(Side.find, "unknown")
        assert refused.value.param == "name"


async def test_a_defect_of_the_other_side_is_an_answer_too(caplog: pytest.LogCaptureFixture) -> None:
    async with connected() as (near, _, _part):
        with pytest.raises(RequestError, match="Internal error"):
            await near.ask(Side.find, "defect")
    assert "ArithmeticError" in caplog.text


async def test_a_question_ends_with_the_other_process() -> None:
    async with connected() as (near, far, _):
        asked = asyncio.ensure_future(near.ask(Side.find, "slow"))
        far.close()
        with pytest.raises(ShuttingDown):
            await asked
        with pytest.raises(ShuttingDown):
            await near.ask(Side.find, "b")


async def test_a_worker_whose_owner_was_gone_before_it_was_made_hears_so() -> None:
    channel = WorkerChannel()
    ours, theirs = socket.socketpair()
    await channel.open(theirs)
    ours.close()
    await until(lambda: channel.closed)
    heard: list[str] = []
    channel.when_lost.append(lambda: heard.append("lost"))
    channel.take_held()
    assert heard == ["lost"]
