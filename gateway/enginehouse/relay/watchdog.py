"""The time limits of all live requests, looked at together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter

from enginehouse.relay.live_request import LiveRequest
from enginehouse.relay.waiting_room import WaitingRoom

_EVERY = 0.05


class Watchdog:
    """Has every live request look at its time limits every 50 ms, and the waiting room at those who wait.

    One sweep for all of them is far cheaper than timers that are set and cancelled for every piece of an answer.
    """

    def __init__(
        self, live: Iterable[LiveRequest], waiting_room: WaitingRoom, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._live = live
        self._waiting_room = waiting_room
        self._clock = clock
        self._handle: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """There is something to watch."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(_EVERY, self._sweep)

    def stop(self) -> None:
        """Watch no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _sweep(self) -> None:
        self._handle = None
        now = self._clock()
        live = list(self._live)
        for request in live:
            request.check_time(now)
        if live:
            self.wake()
        self._waiting_room.look(now)
