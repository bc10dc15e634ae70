"""Receives the events of the prefix cache of one rank of an engine over ZeroMQ."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from enginehouse.engine_caches import CacheEvent, KvEventSettings
from enginehouse.runtime import BackgroundTasks
from enginehouse_kit.cache_events.numbered import CacheEvents, Message, read_message

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
