"""Duplicates of a stream in any order, while clients leave and the stream breaks or moves: one computation for all."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from tests.support.model_engine import Break, ModelEngine, StartModelEngine
from tests.support.raw_client import RawClient
from tests.support.scripted_engine import Cut
from tests.support.seen_stream import read_stream
from tests.support.served_gateway import MODEL, OpenGateway, ServedGateway
from tests.support.streaming_model import stream
from tests.support.waiting import until

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Tell"}], "stream": True, "max_tokens": 40}
WHOLE = read_stream(b"".join(stream(CHAT, msgspec.json.encode(BODY))))
CLIENTS = 10
"""Of each seed: 200 in all."""


class Duplicates:
    """The clients of one stream. At least one of them stays until the end."""

    def __init__(self, gateway: ServedGateway, chance: Random) -> None:
        self.gateway = gateway
        self.chance = chance
        self.lines = [b"idempotency-key: same"] if chance.random() < 0.5 else []
        self.clients: list[RawClient] = []
        self.sent = self.left = 0

    async def send(self, number: int, *, later: bool = False) -> None:
        """So many clients ask, whose fields have any order. ``later``: the stream has ended; otherwise they join it."""
        ids = [f"r{self.sent + each}" for each in range(number)]
        for id in ids:
            client = await self.gateway.client()
            fields = self.chance.sample([*BODY.items()], len(BODY))
            client.send(self.gateway.post(dict(fields), *self.lines, f"x-request-id: {id}".encode(), path=CHAT))
            self.clients.append(client)
            self.sent += 1
        await until(lambda: later or all(map(self.gateway.relay.find, ids)))

    async def some_leave(self) -> None:
        """Any clients leave, perhaps the one that was first."""
        for client in self.chance.sample(self.clients, self.chance.randrange(len(self.clients))):
            client.close()
            self.clients.remove(client)
            self.left += 1
        # the request that is computed for the others stays
        await until(lambda: len(self.gateway.relay.live) <= len(self.clients) + 1)

    async def answers(self) -> list[Any]:
        replies = await asyncio.gather(*(client.reply() for client in self.clients))
        assert {(reply.status, reply.whole) for reply in replies} == {(200, True)}
        self.clients.clear()
        return [read_stream(reply.body).answer for reply in replies]


@pytest.mark.parametrize("seed", range(20))
async def test_duplicates_are_computed_once(house: OpenGateway, model_engine: StartModelEngine, seed: int) -> None:
    chance = Random(seed)
    source, other = await model_engine(), await model_engine()
    gateway = await house(source, other, backend={"driver": "vllm"}, interceptors=["join_duplicates"])
    duplicates = Duplicates(gateway, chance)
    events, gate, later = 2 + chance.randrange(28), asyncio.Event(), asyncio.Event()
    fault = ("", "break", "move")[seed % 3]
    if fault == "break":
        source.breaks = [Break(events, gate, chance.choice([Cut.CLOSE, Cut.RESET]))]
    else:
        source.gate = (events, gate)
    other.gate = (3 + chance.randrange(3), later)
    before = 1 + chance.randrange(CLIENTS - 1)
    between = chance.randrange(CLIENTS - before)

    await duplicates.send(1)
    await until(lambda: source.calls)
    await duplicates.send(before - 1)
    if chance.random() < 0.7:
        await duplicates.some_leave()
    if fault == "move":
        await _moves(gateway)
    gate.set()
    if fault:
        await until(lambda: any(call.request_line.startswith(b"POST /v1/completions") for call in other.calls))
        await duplicates.send(between)
        await duplicates.some_leave()
    later.set()
    answers = await duplicates.answers()
    await duplicates.send(CLIENTS - duplicates.sent, later=True)
    answers += await duplicates.answers()

    assert (len(answers), duplicates.sent) == (CLIENTS - duplicates.left, CLIENTS)
    assert all(answer == WHOLE.answer for answer in answers)
    assert _computed(source) + _computed(other) == 1
    await gateway.quiet()
    assert gateway.relay.context.engine_memory.held == 0


async def _moves(gateway: ServedGateway) -> None:
    """Move the stream, once it has something to continue."""
    [live] = gateway.relay.find("r0")
    await until(lambda: live.why_not_movable is None)
    await gateway.relay.move("r0", "b")


def _computed(engine: ModelEngine) -> int:
    """The requests that were computed from their beginning."""
    return sum(call.request_line.startswith(b"POST /v1/chat/completions") for call in engine.calls)
