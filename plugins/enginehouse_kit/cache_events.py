"""Follows the prefix caches of engines that publish their events as vLLM does.

Reads messages, notices lost ones and has them sent again, receives the events of one rank over ZeroMQ, and makes those
of a whole engine from those of its data-parallel ranks.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from enginehouse.engine_caches import CacheFollower, KvEventSettings
from enginehouse.runtime import BackgroundTasks
from enginehouse_kit.block_events import (
    BlockHash,
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    CacheEvent,
    EventsComplete,
    EventsLost,
)

_FIELDS: Mapping[str, Sequence[str]] = {
    "BlockStored": (
        *("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"),
        *("extra_keys", "group_idx"),
    ),
    "BlockRemoved": ("block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": (),
}
"""The fields of each event, in the order in which engines send them as an array."""
_IN_GPU = (None, "GPU", "gpu")


class _Stored(msgspec.Struct):
    block_hashes: list[int | bytes]
    token_ids: list[int]
    block_size: int
    parent_block_hash: int | bytes | None = None
    lora_id: int | None = None
    lora_name: str | None = None
    medium: str | None = None
    extra_keys: list[Sequence[Any] | None] | None = None
    group_idx: int | None = None


class _Removed(msgspec.Struct):
    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


def decode_batch(payload: bytes) -> list[CacheEvent]:
    """The events of one message. Those of unknown kinds, and of memory other than the GPU's, are left out.

    Raises ``ValueError`` for a message that is no batch.
    """
    try:
        _, events, *_ = msgspec.msgpack.decode(payload, type=list[Any])
        return [found for event in events for found in _read(event)]
    except (msgspec.MsgspecError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise ValueError(f"no batch of cache events: {error}") from error


def _read(event: Any) -> Iterator[CacheEvent]:
    kind, fields = _taken_apart(event)
    if kind == "BlockStored":
        stored = msgspec.convert(fields, _Stored)
        if stored.medium in _IN_GPU:
            lora = stored.lora_name or (f"lora {stored.lora_id}" if stored.lora_id is not None else "")
            before = stored.parent_block_hash
            parent = None if before is None else _names([before], stored.group_idx)[0]
            hashes = _names(stored.block_hashes[: _of_text(stored)], stored.group_idx)
            yield BlocksStored(hashes, parent, stored.token_ids, stored.block_size, lora)
    elif kind == "BlockRemoved":
        removed = msgspec.convert(fields, _Removed)
        if removed.medium in _IN_GPU:
            yield BlocksRemoved(_names(removed.block_hashes, removed.group_idx))
    elif kind == "AllBlocksCleared":
        yield CacheCleared()


def _of_text(stored: _Stored) -> int:
    """How many blocks come before the first one that an image or a salt decides too."""
    for place, keys in enumerate(stored.extra_keys or ()):
        if any(key != stored.lora_name for key in keys or ()):
            return place
    return len(stored.block_hashes)


def _names(hashes: list[int | bytes], group: int | None) -> list[int | bytes]:
    """Names blocks of one group of layers: it may evict one while others keep theirs under the same hash."""
    return [b"%d/%a" % (group, each) for each in hashes] if group else hashes


def _taken_apart(event: Any) -> tuple[str, Mapping[str, Any]]:
    """An event's kind and its fields; engines send it as an array or as a map."""
    if isinstance(event, dict):
        return event["type"], event
    kind, *values = event
    return kind, dict(zip(_FIELDS.get(kind, ()), values, strict=False))


Message = tuple[int, Sequence[CacheEvent]]
"""A number, which counts up by one, and a batch of events."""


def read_message(number: bytes, payload: bytes) -> Message:
    """The message that an engine published. One that cannot be read counts as lost."""
    try:
        return int.from_bytes(number, "big"), decode_batch(payload)
    except ValueError:
        return int.from_bytes(number, "big"), (EventsLost(),)


class CacheEvents:
    """Turns messages into events in order.

    ``wanted``: the number of the first message that is missing; ``None`` if none is. Ask the engine to send all from
    there again, and give them to ``replayed``. ``exact``: whether all events since the cache was empty are known.
    ``lost`` counts the gaps that could not be filled, ``filled`` those that could.
    """

    def __init__(self) -> None:
        self._next = 0
        self.wanted: int | None = 0
        self.exact = False
        self.lost = self.filled = 0
        self._held: list[Message] = []

    def received(self, message: Message) -> Sequence[CacheEvent]:
        """The events that are in order with this message. It is kept back while earlier ones are missing."""
        number, _ = message
        if self.wanted is not None:
            self._held.append(message)
            return ()
        if number == self._next:
            return self._take([message])
        if number < self._next:  # another process publishes now, whose cache was empty at first
            self._next = 0
            if number == 0:
                self.exact = True
                return [CacheCleared(), *self._take([message])]
        self.wanted = self._next
        self._held.append(message)
        return ()

    def replayed(self, messages: Sequence[Message] | None) -> Sequence[CacheEvent]:
        """The events of what the engine sent again, and of what was kept back meanwhile.

        ``None``: it did not answer, so nobody knows what it has.
        """
        begin, self.wanted = self.wanted, None
        held, self._held = self._held, []
        found = dict(held) | dict(messages or ())
        all_of_them = sorted(found)
        if begin is None or not all_of_them:
            return self._begin_anew(begin) if begin is not None and messages is not None else ()
        first = all_of_them[0]
        whole = first <= begin and all_of_them == list(range(first, all_of_them[-1] + 1))
        events: list[CacheEvent] = []
        if begin == 0:
            self.exact = whole
            events.append(CacheCleared())
        if whole:
            self.filled += 1
        else:
            self.lost += 1
            self.exact = False
            events.append(EventsLost())
        numbers = [number for number in all_of_them if number >= begin]
        self._next = numbers[0] if numbers else self._next
        return [*events, *self._take([(number, found[number]) for number in numbers])]

    def broke(self) -> Sequence[CacheEvent]:
        """Note that the connection was lost: what comes next may have gaps, or come from another process."""
        self.exact = False
        return [EventsLost()]

    def restart(self) -> None:
        """Want all messages again that the engine still has."""
        self._next, self.wanted, self._held = 0, 0, []
        self.exact = False

    def _begin_anew(self, begin: int) -> Sequence[CacheEvent]:
        """The engine has sent nothing so far."""
        self._next = begin
        self.exact = begin == 0
        return [CacheCleared()] if self.exact else []

    def _take(self, messages: Sequence[Message]) -> list[CacheEvent]:
        events: list[CacheEvent] = []
        for number, found in messages:
            self._next = number + 1
            if any(isinstance(each, EventsLost) for each in found):
                self.exact = False
                self.lost += 1
            if any(isinstance(each, CacheCleared) for each in found):
                self.exact = True
            events += found
        return events


_log = logging.getLogger(__name__)
_END: Final = b"\xff" * 8
"""The number after the last message that is sent again: -1."""
_REPLAY_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 300.0
_AT_ONCE: Final = 64
"""So many messages and events are handled in one turn of the event loop; an engine may send 10,000 again."""
_RECONNECT_MS: Final = 1000
"""The longest pause between two attempts to connect: an engine that the gateway launches may be at rest for hours."""


class RankFollower:
    """Subscribes to one rank, and calls ``on_events`` with what happens in its cache, until ``close``.

    ``connected``: whether the engine's socket is there now. Needs the package ``pyzmq``.
    """

    def __init__(
        self, backend: str, settings: KvEventSettings, on_events: Callable[[Sequence[CacheEvent]], None]
    ) -> None:
        self.stream = CacheEvents()
        self.connected = False
        self._backend = backend
        self._settings = settings
        self._on_events = on_events
        self._untold: deque[CacheEvent] = deque()
        self._tasks = BackgroundTasks()
        self._pause_s = _REPLAY_S
        self._again: asyncio.TimerHandle | None = None
        """Asks once more an engine that did not send its events again."""

    def start(self) -> None:
        """Begin to follow. Needs a running event loop."""
        self._tasks.start(self._follow())

    def close(self) -> None:
        """Follow no longer."""
        self._tasks.cancel()
        self._ask_no_more()

    def begin_anew(self) -> None:
        """Ask for all that the engine still has: now, or when it is there."""
        self.stream.restart()
        if self._settings.replay and self.connected:
            self._tasks.start(self._resynchronize())

    async def _follow(self) -> None:
        import zmq
        import zmq.asyncio

        with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as socket:
            socket.linger = 0
            socket.reconnect_ivl_max = _RECONNECT_MS
            socket.subscribe(self._settings.topic)
            monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            socket.connect(self._settings.endpoint)
            watch = asyncio.create_task(self._watch(monitor))
            try:
                while True:
                    await self._take(await socket.recv_multipart())
            finally:
                watch.cancel()
                socket.disable_monitor()
                monitor.close()

    async def _take(self, parts: Sequence[bytes]) -> None:
        if len(parts) != 3 or len(parts[1]) != 8:
            return
        self._tell(self.stream.received(read_message(parts[1], parts[2])))
        if self.stream.wanted is not None:
            await self._resynchronize()

    async def _resynchronize(self) -> None:
        wanted = self.stream.wanted
        if wanted is None:
            return
        messages = await self._replay(wanted) if self._settings.replay else []
        if self.stream.wanted != wanted:  # another question was asked meanwhile
            return
        lost = self.stream.lost
        self._tell(self.stream.replayed(messages))
        if self.stream.lost > lost:
            _log.warning("Backend '%s': events of its prefix cache are lost; what it has is estimated", self._backend)
        self._ask_no_more()
        if messages is None:
            self._again = asyncio.get_running_loop().call_later(self._pause_s, self.begin_anew)
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        else:
            self._pause_s = _REPLAY_S

    def _ask_no_more(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    async def _replay(self, begin: int) -> Sequence[Message] | None:
        """What the engine still has from the message ``begin`` on; ``None`` if it does not say so in time."""
        import zmq
        import zmq.asyncio

        found: list[Message] = []
        with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(self._settings.replay)
            await socket.send_multipart((b"", begin.to_bytes(8, "big")))
            try:
                while True:  # parts: empty, the topic (not from every version of vLLM), the number, the events
                    *_, number, payload = await asyncio.wait_for(socket.recv_multipart(), _REPLAY_S)
                    if number == _END:
                        return found
                    found.append(read_message(number, payload))
                    if len(found) % _AT_ONCE == 0:
                        await asyncio.sleep(0)
            except (TimeoutError, asyncio.TimeoutError, ValueError):
                _log.warning("Backend '%s' does not send the events of its prefix cache again", self._backend)
                return None

    async def _watch(self, monitor: Any) -> None:
        """Notice that the connection is lost or there again: events that were sent meanwhile are missing."""
        import zmq
        from zmq.utils.monitor import recv_monitor_message

        was_connected = False
        while True:
            event = (await recv_monitor_message(monitor))["event"]
            self.connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
            if not self.connected:
                self._tell(self.stream.broke())
            elif was_connected or self._settings.replay:
                self.begin_anew()
            was_connected = was_connected or self.connected

    def _tell(self, events: Sequence[CacheEvent]) -> None:
        if not self._untold and len(events) <= _AT_ONCE:
            if events:
                self._on_events(events)
            return
        is_telling = bool(self._untold)
        self._untold += events
        if not is_telling:
            self._tasks.start(self._tell_bit_by_bit())

    async def _tell_bit_by_bit(self) -> None:
        while self._untold:
            self._on_events([self._untold.popleft() for _ in range(min(_AT_ONCE, len(self._untold)))])
            await asyncio.sleep(0)


def of_rank(settings: KvEventSettings, rank: int) -> KvEventSettings:
    """The sockets of one rank, as vLLM and SGLang number them."""
    endpoint, replay = _further(settings.endpoint, rank), _further(settings.replay, rank)
    return msgspec.structs.replace(settings, endpoint=endpoint, replay=replay, ranks=1)


def _further(endpoint: str, by: int) -> str:
    address, _, port = endpoint.rpartition(":")
    return f"{address}:{int(port) + by}" if by and endpoint else endpoint


class RankedFollower(CacheFollower):
    """Follows all ranks of the engine of ``backend``. Needs a running event loop, and the package ``pyzmq``."""

    def __init__(
        self, backend: str, settings: KvEventSettings, on_events: Callable[[Sequence[CacheEvent]], None]
    ) -> None:
        self._on_events = on_events
        self._cache = RankedCache(settings.ranks)
        self._ranks = [
            RankFollower(backend, of_rank(settings, rank), partial(self._tell, rank)) for rank in range(settings.ranks)
        ]
        for each in self._ranks:
            each.start()

    @property
    def connected(self) -> bool:
        return all(each.connected for each in self._ranks)

    @property
    def exact(self) -> bool:
        return all(each.stream.exact for each in self._ranks)

    @property
    def gaps(self) -> tuple[int, int]:
        streams = [each.stream for each in self._ranks]
        return sum(each.filled for each in streams), sum(each.lost for each in streams)

    def begin_anew(self) -> None:
        self._cache = RankedCache(len(self._ranks))
        for each in self._ranks:
            each.begin_anew()

    def close(self) -> None:
        for each in self._ranks:
            each.close()

    def _tell(self, rank: int, events: Sequence[CacheEvent]) -> None:
        self._on_events(events if len(self._ranks) == 1 else [*self._cache.happened(rank, events)])


class RankedCache:
    """The cache of an engine with several ranks: it has a block while one of them has it."""

    def __init__(self, ranks: int) -> None:
        self._held: list[set[BlockHash]] = [set() for _ in range(ranks)]
        self._exact = [False] * ranks

    def happened(self, rank: int, events: Sequence[CacheEvent]) -> Iterator[CacheEvent]:
        """What the events of one rank mean for the whole engine."""
        held = self._held[rank]
        for event in events:
            if isinstance(event, BlocksStored):
                held.update(event.hashes)
                yield event
            elif isinstance(event, BlocksRemoved):
                yield self._removed(held, event.hashes)
            elif isinstance(event, CacheCleared):
                yield self._removed(held, [*held])
                self._exact[rank] = True
                if all(self._exact):
                    yield EventsComplete()
            else:
                self._exact[rank] = False
                yield EventsLost()

    def _removed(self, held: set[BlockHash], hashes: Sequence[BlockHash]) -> BlocksRemoved:
        """Of the blocks that one rank has no more, those that no other one has either."""
        held.difference_update(hashes)
        return BlocksRemoved([each for each in hashes if not any(each in others for others in self._held)])
