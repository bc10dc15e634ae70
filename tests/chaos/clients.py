"""Scripted clients: how they send, read and leave."""

from __future__ import annotations

import asyncio
import random
from typing import Literal, NamedTuple

import h11

from tests.chaos.asks import Ask
from tests.chaos.endpoint import LinkQuality
from tests.chaos.network import Network
from tests.chaos.streams import Stream

Sends = Literal["whole", "in pieces", "slowly"]
Reads = Literal["at once", "slowly", "never"]
Leaves = Literal["", "reset", "close", "half-close"]

_PATIENCE_S = 60.0
"""Longer than anything may take under the bench's configurations."""
_UNREAD_S = 15.0
_SLOW_S = 20.0
"""A slow reader no longer pauses after so many seconds of pauses: some answers have megabytes."""
_READS: tuple[Reads, ...] = (*("at once",) * 8, "slowly", "never")


class Manner(NamedTuple):
    """How a client behaves. ``leaves_after`` is in seconds, ``stops_after`` in bytes of answers."""

    sends: Sends = "whole"
    reads: Reads = "at once"
    leaves: Leaves = ""
    leaves_after: float = 0.0
    stops_after: int = 0
    pipelines: bool = False


class Plan(NamedTuple):
    """One connection of a client, opened ``at`` a time: its requests, and how it behaves."""

    at: float
    asks: tuple[Ask, ...]
    manner: Manner


def make_manner(rng: random.Random, count: int) -> Manner:
    """Any behaviour, most of them good."""
    reads: Reads = rng.choice(_READS)
    ways: tuple[Leaves, ...] = ("reset", "close", "half-close")
    leaves: Leaves = rng.choice(ways[: 2 if reads == "never" else 3]) if rng.random() < 0.25 else ""
    return Manner(
        sends=rng.choice(("whole", "whole", "whole", "in pieces", "slowly")),
        reads=reads,
        leaves=leaves,
        leaves_after=rng.choice((0.0, 0.01, 0.1, 1.0, 4.0)) * rng.random(),
        stops_after=rng.choice((0, 1, 200, 2000)) if leaves and reads != "never" and rng.random() < 0.4 else 0,
        pipelines=count > 1 and rng.random() < 0.4,
    )


class Client:
    """Carries out a plan. ``left``: it has gone before its answers; ``violations`` says what no client may see."""

    def __init__(self, plan: Plan, network: Network, address: tuple[str, int], rng: random.Random) -> None:
        self.plan = plan
        self.left = ""
        self.refused = False
        self.violations: list[str] = []
        self._network = network
        self._address = address
        self._rng = rng
        self._received = 0
        self._slowed = 0.0
        self._stream = Stream()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self.plan.at - loop.time()))
        quality = LinkQuality(self._rng)
        try:
            endpoint, _ = await self._network.connect(lambda: self._stream, self._address, "client", quality)
        except ConnectionRefusedError:
            self.refused = True
            return
        manner = self.plan.manner
        for ask in self.plan.asks:
            ask.connection = endpoint.peer.name
        leaving = None
        if manner.leaves and not manner.stops_after:
            leaving = loop.call_later(manner.leaves_after, self._leave)
        elif manner.reads == "never":
            leaving = loop.call_later(_UNREAD_S, self._leave)
        if manner.reads == "never":
            endpoint.pause_reading()
        try:
            await asyncio.wait_for(self._talk(), _PATIENCE_S)
        except asyncio.TimeoutError:
            if not self.left:  # else it has closed its end, and what it had sent is still on its way
                self.violations.append("waited for its answer in vain")
        finally:
            endpoint.abort()
            if leaving is not None:
                leaving.cancel()

    def _leave(self) -> None:
        transport = self._stream.transport
        if transport.is_closing():
            return
        self.left = self.plan.manner.leaves or "reset"
        if self.left == "reset":
            transport.reset()
        elif self.left == "close":
            transport.close()
        else:
            transport.write_eof()

    # --- the conversation

    async def _talk(self) -> None:
        asks = self.plan.asks
        if self.plan.manner.pipelines:
            wire = b""
            for ask in asks:
                self._begin(ask)
                wire += ask.wire()
            sending = asyncio.ensure_future(self._send(wire))
            data = b""
            for ask in asks:
                rest = await self._receive(ask, data)
                if rest is None:
                    break
                data = rest
            sending.cancel()
            return
        for ask in asks:
            if self._stream.transport.is_closing():
                return
            self._begin(ask)
            sending = asyncio.ensure_future(self._send(ask.wire()))
            rest = await self._receive(ask, b"")
            if rest is None:
                sending.cancel()
                return
            await sending
            if rest:
                self.violations.append(f"{ask.name}: more than one answer: {rest[:80]!r}")
            await asyncio.sleep(self._rng.choice((0.0, 0.0, 0.05, 1.0)))

    def _begin(self, ask: Ask) -> None:
        ask.sent = True
        ask.began_at = asyncio.get_running_loop().time()

    async def _send(self, wire: bytes) -> None:
        manner, rng, at = self.plan.manner.sends, self._rng, 0
        if manner == "whole":
            await self._put(wire)
            return
        while at < len(wire):
            size = rng.randint(1, max(1, len(wire) // 4))
            await self._put(wire[at : at + size])
            at += size
            await asyncio.sleep(rng.uniform(0, 0.01 if manner == "in pieces" else 0.8))

    async def _put(self, data: bytes) -> None:
        if not self._stream.transport.is_closing() and self.left != "half-close":
            await self._stream.write(data)

    async def _receive(self, ask: Ask, data: bytes) -> bytes | None:
        """The answer to ``ask``, of which ``data`` has come; what came behind it, or ``None`` at the end of all."""
        parser = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        parser.send(h11.Request(method=ask.method, target="/", headers=[("host", "gateway")]))
        parser.send(h11.EndOfMessage())
        ask.starts_at = self._received - len(data)
        if data:
            parser.receive_data(data)
        try:
            return await self._parse(ask, parser)
        except h11.RemoteProtocolError as error:
            ask.broken = str(error)
            if not self._stream.ended:
                self.violations.append(f"{ask.name}: its answer is no HTTP: {error}")
            return None
        finally:
            ask.ended_at = asyncio.get_running_loop().time()

    async def _parse(self, ask: Ask, parser: h11.Connection) -> bytes | None:
        while True:
            event = parser.next_event()
            if event is h11.NEED_DATA:
                data = await self._read()
                if not data and (self._stream.broken or self.left in ("close", "reset")):
                    ask.broken = self.left or "reset"
                    return None
                parser.receive_data(data)
            elif isinstance(event, h11.Response):
                ask.status = event.status_code
                ask.answer_headers = dict(event.headers)
            elif isinstance(event, h11.Data):
                ask.answer += event.data
            elif isinstance(event, h11.EndOfMessage):
                ask.complete = True
                if parser.their_state is h11.MUST_CLOSE or parser.their_state is h11.CLOSED:
                    await self._expect_end(ask)
                    return None
                return bytes(parser.trailing_data[0])
            elif isinstance(event, h11.ConnectionClosed):
                ask.broken = "closed"
                return None

    async def _expect_end(self, ask: Ask) -> None:
        if self.plan.manner.pipelines:
            return
        if rest := await self._read():
            self.violations.append(f"{ask.name}: something after the last answer: {rest[:80]!r}")

    async def _read(self) -> bytes:
        manner = self.plan.manner
        slow = manner.reads == "slowly" and self._slowed < _SLOW_S
        if slow and self._rng.random() < 0.3 and not self._stream.transport.is_closing():
            self._stream.transport.pause_reading()
            pause = self._rng.uniform(0, 1.5)
            self._slowed += pause
            await asyncio.sleep(pause)
            self._stream.transport.resume_reading()
        data = await self._stream.read()
        self._received += len(data)
        if manner.stops_after and self._received >= manner.stops_after:
            self._leave()
        return data
