"""Samples the durations of plugins' calls. The event loop does nothing else during such a call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from enginehouse.domain.plugin_id import PluginId
from enginehouse.telemetry.counters import Histogram
from enginehouse.telemetry.plugin_failures import RateLimit

_log = logging.getLogger(__name__)

BUCKETS = (1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 1.0)
"""Upper bounds of the histogram's buckets, in seconds."""
_SLOW_S = 0.005
_LOG_EVERY_S = 60.0
Observe = Callable[[PluginId, float], None]
"""Takes the duration of a call, in seconds."""


class SampledCall:
    """A method of a plugin that is called often: ``call(...)``.

    ``call`` is the method itself, so that a call costs nothing more, except for the next one after ``sample``.
    ``is_sampled``: the next call is timed.
    """

    __slots__ = ("_observe", "call", "is_sampled", "method", "plugin")

    def __init__(self, plugin: PluginId, method: Callable[..., Any]) -> None:
        self.plugin = plugin
        self.call = self.method = method
        self.is_sampled = False
        self._observe: Observe | None = None

    def sample(self, observe: Observe) -> None:
        """Report the duration of the next call to ``observe``."""
        self._observe = observe
        self.call = self._timed
        self.is_sampled = True

    def _timed(self, *arguments: Any) -> Any:
        self.call, observe = self.method, self._observe
        self.is_sampled = False
        assert observe is not None
        began = perf_counter()
        try:
            return self.method(*arguments)
        finally:
            observe(self.plugin, perf_counter() - began)


class PluginTimes:
    """The sampled times of each plugin's calls. ``sample`` is called regularly, by the monitor of the event loop.

    A plugin is named in the log, at most once a minute, if two samples in a row took more than 5 ms: one alone may be
    due to a busy machine.
    """

    def __init__(self) -> None:
        self.by_plugin: dict[PluginId, Histogram] = {}
        self._slow: set[PluginId] = set()
        self._limit = RateLimit(_LOG_EVERY_S)

    def sample(self, calls: Iterable[SampledCall]) -> None:
        """Observe the next call of each."""
        for call in calls:
            call.sample(self.observe)

    def observe(self, plugin: PluginId, seconds: float) -> None:
        """Count one sample."""
        histogram = self.by_plugin.get(plugin)
        if histogram is None:
            histogram = self.by_plugin[plugin] = Histogram(BUCKETS)
        histogram.observe(seconds)
        if seconds < _SLOW_S:
            self._slow.discard(plugin)
        elif plugin not in self._slow:
            self._slow.add(plugin)
        elif self._limit.passes(plugin) is not None:
            text = "The %s is slow: it blocks the event loop for %.0f ms at a call, and every request waits meanwhile"
            _log.warning(text, plugin, seconds * 1000)
