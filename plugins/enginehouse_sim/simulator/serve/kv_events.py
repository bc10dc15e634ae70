"""Publishes the prefix cache's events over ZeroMQ in vLLM's format, for routers that know what each engine caches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from itertools import count

import msgspec
import zmq
import zmq.asyncio

from enginehouse_sim.simulator.kv.events import KvEvent
from enginehouse_sim.simulator.server.simulation import KvEventsConfig

_END = (-1).to_bytes(8, "big", signed=True)


class KvEventBatch(msgspec.Struct, array_like=True):
    """The events of a step; ``ts`` is in seconds since 1970."""

    ts: float
    events: Sequence[KvEvent]
    data_parallel_rank: int = 0


class KvEventPublisher:
    """Sends [topic, number, batch] to all subscribers. Numbers begin with 0, and have eight bytes, big-endian.

    A client of the replay endpoint sends a number. It gets the kept batches from that number on, then number -1. Raises
    ``OSError`` if an address cannot be used.
    """

    def __init__(self, config: KvEventsConfig) -> None:
        self._topic = config.topic.encode()
        self._numbers = count()
        self._recent: deque[tuple[bytes, bytes]] = deque(maxlen=config.buffer_steps)
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.PUB)
        self._socket.set_hwm(config.hwm)
        self._replay: zmq.asyncio.Socket | None = None
        try:
            self._socket.bind(config.endpoint)
            if config.replay_endpoint is not None:
                self._replay = zmq.asyncio.Context.shadow(self._context).socket(zmq.ROUTER)
                self._replay.bind(config.replay_endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OSError(f"KV events cannot be published: {error}") from error
        self.address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def publish(self, events: Sequence[KvEvent]) -> None:
        """Send the events of a step; a subscriber that is too slow misses them."""
        batch = KvEventBatch(time.time(), events)
        number, payload = next(self._numbers).to_bytes(8, "big"), msgspec.msgpack.encode(batch)
        self._recent.append((number, payload))
        self._socket.send_multipart((self._topic, number, payload))

    async def replay(self) -> None:
        """Answer clients of the replay endpoint until cancelled."""
        if self._replay is None:
            return
        while True:
            client, *_, start = await self._replay.recv_multipart()
            await self._send_since(self._replay, client, start)

    async def _send_since(self, socket: zmq.asyncio.Socket, client: bytes, start: bytes) -> None:
        for number, payload in tuple(self._recent):
            if number >= start:
                await socket.send_multipart((client, b"", self._topic, number, payload))
        await socket.send_multipart((client, b"", b"", _END, b""))

    def close(self) -> None:
        self._socket.close(linger=0)
        if self._replay is not None:
            self._replay.close(linger=0)
        self._context.term()
