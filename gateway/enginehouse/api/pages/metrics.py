"""``GET /metrics``, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from enginehouse.api.doors.body_memory import BodyMemory
from enginehouse.domain.replica import Health
from enginehouse.relay.relay import Relay
from enginehouse.telemetry.counters import BUCKETS, Histogram
from enginehouse.telemetry.loop_watch import LoopMonitor
from enginehouse.telemetry.plugin_times import PluginTimes


def _texts(bounds: Sequence[float]) -> Sequence[str]:
    return (*map(str, bounds), "+Inf")


_BOUNDS = _texts(BUCKETS)


class Metrics(Collector):
    """Renders counters that the relay and the fleet keep anyway: a request pays nothing for it."""

    def __init__(
        self, relay: Relay, body_memory: BodyMemory, loop_monitor: LoopMonitor, plugin_times: PluginTimes
    ) -> None:
        self._relay = relay
        self._body_memory = body_memory
        self._plugin_times = plugin_times
        self._loop_monitor = loop_monitor
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def page(self, request: Request) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_LATEST)

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; the Prometheus client library calls this."""
        yield from self._requests()
        yield from self._continuations()
        yield from self._backends()
        yield from self._loop()

    def _requests(self) -> Iterator[Metric]:
        counters = self._relay.context.counters
        names = ["backend", "model"]
        total = CounterMetricFamily("enginehouse_requests", "Finished requests.", labels=[*names, "status"])
        first = HistogramMetricFamily(
            "enginehouse_time_to_first_byte_seconds", "From sending a request until its answer began.", labels=names
        )
        duration = HistogramMetricFamily(
            "enginehouse_request_duration_seconds", "From a whole request to the end of its answer.", labels=names
        )
        for backend, model, series in counters:
            for status, count in series.requests.items():
                total.add_metric([backend, model, str(status)], count)
            first.add_metric([backend, model], *_buckets(series.first_byte))
            duration.add_metric([backend, model], *_buckets(series.duration))
        refused = CounterMetricFamily(
            "enginehouse_refused", "Requests answered with an error of ours.", labels=["code"]
        )
        for code, count in counters.refused.items():
            refused.add_metric([code], count)
        retries = CounterMetricFamily(
            "enginehouse_retries", "Requests sent once more after a failure.", labels=["backend"]
        )
        for backend, count in counters.retries.items():
            retries.add_metric([backend], count)
        stale = CounterMetricFamily(
            "enginehouse_stale_connections",
            "Requests sent anew because a kept connection was closed.",
            labels=["backend"],
        )
        for backend, count in counters.stale.items():
            stale.add_metric([backend], count)
        swaps = HistogramMetricFamily(
            "enginehouse_swap_duration_seconds", "From the decision of a swap to its end.", labels=["target", "outcome"]
        )
        for (target, outcome), histogram in counters.swaps.items():
            swaps.add_metric([target, outcome], *_buckets(histogram))
        yield swaps
        live = GaugeMetricFamily("enginehouse_live_requests", "Requests that have no whole answer yet.")
        live.add_metric([], len(self._relay.live))
        held = GaugeMetricFamily("enginehouse_request_body_bytes", "Bytes of request bodies that are held.")
        held.add_metric([], self._body_memory.held)
        yield from (total, first, duration, refused, retries, stale, live, held)

    def _continuations(self) -> Iterator[Metric]:
        counters = self._relay.context.counters
        total = CounterMetricFamily(
            "enginehouse_continuations",
            "Streams that went on at another backend.",
            labels=["backend", "reason", "outcome"],
        )
        for labels, count in counters.continuations.items():
            total.add_metric(labels, count)
        gaps = HistogramMetricFamily(
            "enginehouse_continuation_gap_seconds", "From the cut until the stream went on.", labels=["reason"]
        )
        for reason, histogram in counters.gaps.items():
            gaps.add_metric([reason], *_buckets(histogram))
        yield from (total, gaps)

    def _loop(self) -> Iterator[Metric]:
        lag = HistogramMetricFamily("enginehouse_event_loop_lag_seconds", "How late the event loop turns.")
        lag.add_metric([], *_buckets(self._loop_monitor.lag))
        slow = CounterMetricFamily(
            "enginehouse_slow_plugin_calls", "Calls of plugins that held the event loop over 100 ms.", labels=["plugin"]
        )
        for plugin, count in list(self._loop_monitor.slow.items()):
            slow.add_metric([plugin], count)
        times = HistogramMetricFamily(
            "enginehouse_plugin_seconds", "Sampled calls of plugins.", labels=["kind", "type", "name"]
        )
        for timed, histogram in list(self._plugin_times.by_plugin.items()):
            times.add_metric([timed.kind, timed.type, timed.name or timed.type], *_buckets(histogram))
        yield from (lag, slow, times)

    def _backends(self) -> Iterator[Metric]:
        pending = GaugeMetricFamily("enginehouse_backend_pending", "Requests at a backend.", labels=["backend"])
        healthy = GaugeMetricFamily("enginehouse_backend_healthy", "1 if a backend is healthy.", labels=["backend"])
        latency = GaugeMetricFamily(
            "enginehouse_backend_latency_seconds", "Average time until an answer begins.", labels=["backend"]
        )
        for backend in self._relay.context.fleet.backends():
            pending.add_metric([backend.name], backend.pending)
            healthy.add_metric([backend.name], backend.health is Health.HEALTHY)
            latency.add_metric([backend.name], backend.avg_latency_ms / 1000)
        yield from (pending, healthy, latency)


def _buckets(histogram: Histogram) -> tuple[list[tuple[str, float]], float]:
    bounds = _BOUNDS if histogram.bounds is BUCKETS else _texts(histogram.bounds)
    return list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total
