"""Watches the event loop: how busy it is, its delay, and the plugin that blocks it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic, thread_time
from types import FrameType
from typing import Any

from enginehouse.telemetry.counters import Histogram
from enginehouse.telemetry.plugin_failures import RateLimit

_log = logging.getLogger(__name__)

_TURNS_A_SECOND = 10
_TURN_S = 1 / _TURNS_A_SECOND
_LOOK_S = 0.025
_SLOW_S = 0.1
_LONG_S = 1.0
_STUCK_S = 5.0
_LOG_EVERY_S = 10.0
_LOOP_RUNNERS = frozenset({"asyncio.runners", "uvicorn.server", "uvicorn._compat"})
_LEAST_S = 0.2
"""A shorter time says little of how busy the loop is."""


class LoopLoad:
    """Measures the share of the processor that the thread of the event loop takes."""

    def __init__(self) -> None:
        self._wall, self._worked = monotonic(), thread_time()
        self._share = 0.0

    def share(self) -> float:
        """The share since the last call, from 0 to 1."""
        wall, worked = monotonic(), thread_time()
        if wall - self._wall >= _LEAST_S:
            self._share = min(1.0, (worked - self._worked) / (wall - self._wall))
            self._wall, self._worked = wall, worked
        return round(self._share, 3)


def worker_row(pid: int, requests: int, config_version: int, loop_busy: float) -> dict[str, Any]:
    """One process that relays requests, as ``/api/status`` shows it."""
    return {"pid": pid, "requests": requests, "config_version": config_version, "loop_busy": loop_busy}


class LoopMonitor:
    """Notes when the event loop turns, ten times a second. ``on_second`` is called at every tenth turn.

    ``lag``: how late it was. ``slow``: calls of more than 100 ms, by plugin.
    """

    def __init__(self, on_second: Callable[[], None] = lambda: None) -> None:
        self._on_second = on_second
        self._turns = 0
        self.lag = Histogram()
        self.slow: Counter[str] = Counter()
        self.turned = monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin, on the running event loop."""
        self.turned = monotonic()
        self._timer = asyncio.get_running_loop().call_later(_TURN_S, self._turn)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def held(self) -> float:
        """The seconds for which a call has held the loop."""
        return max(0.0, self.late())

    def late(self) -> float:
        """The seconds since the loop's next turn was due; negative before."""
        return monotonic() - self.turned - _TURN_S

    def _turn(self) -> None:
        self.lag.observe(self.held())
        self.turned = monotonic()
        self._turns += 1
        if self._turns % _TURNS_A_SECOND == 0:
            self._on_second()
        self._timer = asyncio.get_running_loop().call_later(_TURN_S, self._turn)


class LoopWatchdog(threading.Thread):
    """A thread that names the plugin which blocks the event loop of the thread that creates it.

    ``plugins``: by top-level module. ``stopping``: whether the gateway was told to stop; if the loop does not turn for
    ``drain_timeout`` seconds from then on, the process exits with status 1. Launched engines continue: the next gateway
    takes them over.
    """

    def __init__(
        self,
        monitor: LoopMonitor,
        plugins: Mapping[str, str],
        *,
        stopping: Callable[[], bool],
        drain_timeout: Callable[[], float],
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        super().__init__(name="enginehouse-watchdog", daemon=True)
        self._monitor = monitor
        self._plugins = plugins
        self._stopping = stopping
        self._drain_timeout = drain_timeout
        self._leave = leave
        self._watched = threading.get_ident()
        self._running = threading.Lock()  # waiting for an Event takes several times as long
        self._running.acquire()
        self._limit = RateLimit(_LOG_EVERY_S)
        self._told_at = 0.0
        self._blamed = ""
        self._stopping_since: float | None = None

    def run(self) -> None:
        while not self._running.acquire(timeout=max(_LOOK_S, _SLOW_S - self._monitor.late())):
            self.look()

    def end(self) -> None:
        """Stop watching."""
        if self._running.locked():
            self._running.release()

    def look(self) -> None:
        """Report a loop that is held, and end a process that cannot stop."""
        held, turned = self._monitor.held(), self._monitor.turned
        if self._stopping() and self._stopping_since is None:
            self._stopping_since = monotonic()
        if self._blamed and turned != self._told_at:
            self._tell_length(turned - self._told_at - _TURN_S)
        if held < _SLOW_S:
            return
        frame = sys._current_frames().get(self._watched)
        plugin = self._plugin_on(frame)
        if turned != self._told_at and plugin:
            self._told_at, self._blamed = turned, plugin  # once for each time that the loop is held
            self._monitor.slow[plugin] += 1
            if self._limit.passes(plugin) is not None:
                _log.warning("The plugin %s has blocked the event loop for more than %d ms", plugin, held * 1000)
        if held >= _STUCK_S and self._limit.passes("stuck") is not None:
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            _log.error("The event loop has been blocked for %.0f s by %s:\n%s", held, plugin or "no plugin", stack)
        self._leave_if_stuck(held, plugin)

    def _tell_length(self, held: float) -> None:
        """Tell how long the plugin has held the loop, once it turns again."""
        plugin, self._blamed = self._blamed, ""
        if held >= _LONG_S and self._limit.passes(f"{plugin} took long") is not None:
            _log.warning("The plugin %s blocked the event loop for %.1f s", plugin, held)

    def _leave_if_stuck(self, held: float, plugin: str) -> None:
        since, limit = self._stopping_since, max(1.0, self._drain_timeout())
        if since is not None and min(held, monotonic() - since) >= limit:
            # not through the log: the thread that holds the loop may hold the log's lock too
            text = f"The event loop is blocked by {plugin or 'no plugin'} and cannot stop: the process exits\n"
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode())
            self._leave(1)

    def _plugin_on(self, frame: FrameType | None) -> str:
        """The plugin whose code the event loop runs, the innermost one; empty if there is none."""
        while frame is not None:
            name = str(frame.f_globals.get("__name__", ""))
            if name in _LOOP_RUNNERS:  # below is the command that runs the loop, perhaps a plugin's
                return ""
            if (module := name.partition(".")[0]) in self._plugins:
                return self._plugins[module]
            frame = frame.f_back
        return ""
