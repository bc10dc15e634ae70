"""Hands the records of ended requests to observers, when the answers are on their way."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from time import perf_counter
from typing import Final

from enginehouse.domain.request_record import RequestRecord
from enginehouse.telemetry.log_context import LoggedIds, log_context
from enginehouse.telemetry.observers import Callbacks, notify
from enginehouse.telemetry.plugin_failures import RateLimit

_log = logging.getLogger(__name__)

MOST_WAITING: Final = 10_000
_LONGEST_S: Final = 0.005
_PAUSE: Final = 4.0
"""After a delivery that took too long, requests have the event loop for this many times as long."""
_LOG_EVERY_S: Final = 60.0


class RecordDelivery:
    """Calls ``callbacks`` with each record, on a later turn of the event loop than the one that ended the request.

    Observers hold the loop for 5 ms at once and what the last call takes more. Then they get no records for four times
    as long, so slow observers take a fifth of the loop's time. ``most`` records may wait; ``dropped`` counts those that
    came when so many did, and the log tells of them once a minute.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        clock: Callable[[], float] = perf_counter,
        loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.get_running_loop,
        most: int = MOST_WAITING,
    ) -> None:
        self.dropped: Counter[tuple[()]] = Counter()
        self.callbacks = callbacks
        self._clock = clock
        self._loop = loop
        self._most = most
        self._rests_until = 0.0
        self._waiting: deque[RequestRecord] = deque()
        self._next: asyncio.Handle | None = None
        self._limit = RateLimit(_LOG_EVERY_S, clock)

    def add(self, record: RequestRecord) -> None:
        """Deliver ``record`` soon."""
        if len(self._waiting) >= self._most:
            self._drop()
            return
        self._waiting.append(record)
        if self._next is None:
            rest = self._rests_until - self._clock()
            self._next = (
                self._loop().call_later(rest, self._deliver) if rest > 0 else self._loop().call_soon(self._deliver)
            )

    def close(self) -> None:
        """Deliver all records that wait."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._waiting:
            self._deliver_one()

    def _drop(self) -> None:
        self.dropped[()] += 1
        if self._limit.passes("") is not None:
            text = "Observers are too slow: %d records of requests were dropped (enginehouse_records_dropped_total)"
            _log.warning(text, self.dropped[()])

    def _deliver(self) -> None:
        began = now = self._clock()
        while self._waiting and now - began < _LONGEST_S:
            self._deliver_one()
            now = self._clock()
        pause = (now - began) * _PAUSE
        if now - began >= _LONGEST_S:
            self._rests_until = now + pause
        self._next = self._loop().call_later(pause, self._deliver) if self._waiting else None

    def _deliver_one(self) -> None:
        record = self._waiting.popleft()
        with log_context.named(LoggedIds(record.id.encode(), (record.trace_id or "").encode())):
            notify(self.callbacks, record)
