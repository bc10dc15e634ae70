"""Checks the time limits of all live requests together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from enginehouse.relay.live.live_request import LiveRequest, each_alone
from enginehouse.relay.live.progress_reports import ProgressReports
from enginehouse.scheduling.waiting_room import WaitingRoom

_EVERY_S: Final = 0.1


class Watchdog:
    """Makes live requests check their time limits every 100 ms, and sends the progress reports that are due.

    Has the waiting room plan too: a slot may be free for a reason that no queue reports, such as a backend's health.
    ``tell_silence`` tells filters of answers how long their streams have been silent.

    One sweep over all requests is far cheaper than timers that are set and cancelled for each piece of an answer. A
    request that raises fails alone.
    """

    def __init__(
        self,
        live: Collection[LiveRequest],
        progress_reports: ProgressReports,
        now: Callable[[], float],
        waiting_room: WaitingRoom,
        tell_silence: Callable[[float], None],
    ) -> None:
        self._waiting_room = waiting_room
        self._tell_silence = tell_silence
        self._live = live
        self._progress_reports = progress_reports
        self._now = now
        self._handle: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Sweep until no request is live any more."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(_EVERY_S, self._sweep)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _sweep(self) -> None:
        self._handle = None
        now = self._now()
        live = list(self._live)
        if live:
            self.wake()  # first: whatever happens below, the next sweep comes
        each_alone(live, lambda request: request.check_time(now))
        self._tell_silence(now)
        self._waiting_room.tick()
        self._progress_reports.send_due(self._live, now)
