"""Watches the event loop: its delay, and the plugin that blocks it."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import entry_points
from time import monotonic
from types import FrameType
from typing import Final

from enginehouse import Observer
from enginehouse.records import Figures
from enginehouse.runtime import SERVING
from enginehouse.services import Configured, MetricInfo

_log = logging.getLogger(__name__)

_LAG: Final = MetricInfo(
    "histogram", "enginehouse_event_loop_lag_seconds", "Delay of the event loop, which delays all requests."
)
_SLOW_CALLS: Final = MetricInfo(
    "counter",
    "enginehouse_slow_plugin_calls",
    "Calls of plugins that blocked the event loop for more than 100 ms.",
    ("plugin",),
)
_TURN_S = 0.1
_LOOK_S = 0.025
_SLOW_S = 0.1
_LONG_S = 1.0
_STUCK_S = 5.0
_LOG_EVERY_S = 10.0
_LOOP_RUNNERS = frozenset({"asyncio.runners", "uvicorn.server", "uvicorn._compat"})


class LoopWatch(Observer):
    """Notes ten times a second how late the event loop is, and has a thread look for the plugin that holds it."""

    metrics = (_LAG, _SLOW_CALLS)

    def __init__(self) -> None:
        self._figures: Figures
        self._drain_timeout = 0.0

    def use_figures(self, figures: Figures) -> None:
        self._figures = figures

    def at_end(self, configured: Configured) -> None:
        self._drain_timeout = configured.table("server").drain_timeout

    async def start(self) -> None:
        if SERVING.is_stopping is None:
            return
        monitor, loop, figures = LoopMonitor(), asyncio.get_running_loop(), self._figures

        def count(plugin: str) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(figures.count, _SLOW_CALLS, (plugin,))

        watchdog = LoopWatchdog(
            monitor, installed_plugins, count, stopping=SERVING.is_stopping, drain_timeout=lambda: self._drain_timeout
        )
        watchdog.start()
        try:
            while True:
                await asyncio.sleep(_TURN_S)
                figures.observe(_LAG, (), monitor.turn())
        finally:
            watchdog.end()


class LoopMonitor:
    """Knows when the event loop has ``turned`` last, which is due ten times a second."""

    def __init__(self) -> None:
        self.turned = monotonic()

    def held(self) -> float:
        """The seconds for which a call has held the loop."""
        return max(0.0, self.late())

    def late(self) -> float:
        """The seconds since the loop's next turn was due; negative before."""
        return monotonic() - self.turned - _TURN_S

    def turn(self) -> float:
        """Note a turn, and return how late it is."""
        held, self.turned = self.held(), monotonic()
        return held


@cache
def installed_plugins() -> Mapping[str, str]:
    """The plugins as messages name them, by their top-level modules."""
    return {
        each.module.partition(".")[0]: f"'{each.name}' ({each.dist.name} {each.dist.version})"
        for each in entry_points(group="enginehouse")
        if each.dist is not None
    }


class LoopWatchdog(threading.Thread):
    """A thread that names the plugin which blocks the event loop of the thread that creates it, to ``count`` also.

    ``plugins`` returns them by top-level module. ``stopping``: whether the gateway was told to stop; if the loop does
    not turn for ``drain_timeout`` seconds from then on, the process exits with status 1. Launched engines continue: the
    next gateway takes them over.
    """

    def __init__(
        self,
        monitor: LoopMonitor,
        plugins: Callable[[], Mapping[str, str]],
        count: Callable[[str], None],
        *,
        stopping: Callable[[], bool],
        drain_timeout: Callable[[], float],
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        super().__init__(name="enginehouse-watchdog", daemon=True)
        self._monitor = monitor
        self._plugins = plugins
        self._count = count
        self._stopping = stopping
        self._drain_timeout = drain_timeout
        self._leave = leave
        self._watched = threading.get_ident()
        self._running = threading.Lock()  # waiting for an Event takes several times as long
        self._running.acquire()
        self._logged: dict[str, float] = {}
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
            self._count(plugin)
            if self._may_log(plugin):
                _log.warning("The plugin %s has blocked the event loop for more than %d ms", plugin, held * 1000)
        if held >= _STUCK_S and self._may_log("stuck"):
            stack = "".join(traceback.format_stack(frame)) if frame else ""
            _log.error("The event loop has been blocked for %.0f s by %s:\n%s", held, plugin or "no plugin", stack)
        self._leave_if_stuck(held, plugin)

    def _may_log(self, what: str) -> bool:
        now = monotonic()
        passes = now - self._logged.get(what, -_LOG_EVERY_S) >= _LOG_EVERY_S
        if passes:
            self._logged[what] = now
        return passes

    def _tell_length(self, held: float) -> None:
        """Tell how long the plugin has held the loop, once it turns again."""
        plugin, self._blamed = self._blamed, ""
        if held >= _LONG_S and self._may_log(f"{plugin} took long"):
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
            if (plugin := self._plugins().get(name.partition(".")[0])) is not None:
                return plugin
            frame = frame.f_back
        return ""
