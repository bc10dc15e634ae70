"""The event loop, plugins, the exporter of traces, the versions that run, and the processes that relay requests."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import version
from typing import NamedTuple

from prometheus_client.core import Metric

from enginehouse.api.metrics.families import histograms, numbers
from enginehouse.interfaces.accounting import Accounting
from enginehouse.interfaces.exporters import ExportCounters
from enginehouse.telemetry import metric_list as metrics
from enginehouse.telemetry.loop_watch import LoopMonitor
from enginehouse.telemetry.plugin_times import PluginTimes

_version = cache(version)  # it reads files


class WorkerFigures(NamedTuple):
    """``replaced``: how many workers were replaced, by reason. ``busy``: the share of each loop; live."""

    replaced: Mapping[str, int]
    busy: Mapping[int, float]


def caller_metrics(accounting: Accounting) -> Iterator[Metric]:
    """The families of callers."""
    for metric, series in accounting.measure().items():
        yield numbers(metric, series)


def worker_metrics(workers: WorkerFigures) -> Iterator[Metric]:
    """The families of workers, empty in a gateway of one process."""
    yield numbers(metrics.WORKERS_REPLACED, (([why], count) for why, count in workers.replaced.items()))
    yield numbers(metrics.WORKER_BUSY, (([str(number)], busy) for number, busy in workers.busy.items()))


def process_metrics(monitor: LoopMonitor, plugin_times: PluginTimes, exported: ExportCounters) -> Iterator[Metric]:
    """The families of the process."""
    yield histograms(metrics.LOOP_LAG, [([], monitor.lag)])
    slow = list(monitor.slow.items())  # the watchdog, a thread of its own, may add one meanwhile
    yield numbers(metrics.SLOW_CALLS, (([plugin], count) for plugin, count in slow))
    times = list(plugin_times.by_plugin.items())
    yield histograms(metrics.PLUGIN_TIME, (([p.kind, p.type, p.name or p.type], timed) for p, timed in times))
    yield numbers(metrics.SPANS, [(["sent"], exported.spans), (["failed"], exported.failed)])
    yield numbers(metrics.TRACES_DROPPED, (([why], count) for why, count in exported.dropped.items()))
    yield numbers(metrics.EXPORTER_RESTARTS, [([], exported.restarts)])
    yield numbers(metrics.BUILD, [([_version("enginehouse"), platform.python_version()], 1)])
