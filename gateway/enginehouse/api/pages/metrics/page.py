"""``GET /metrics``, in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from enginehouse.api.doors.body_memory import BodyMemory
from enginehouse.api.pages.metrics.fleet import fleet_metrics
from enginehouse.api.pages.metrics.process import process_metrics
from enginehouse.api.pages.metrics.requests import request_metrics
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.relay import Relay
from enginehouse.telemetry.exporter_process import ExportCounters
from enginehouse.telemetry.loop_watch import LoopMonitor
from enginehouse.telemetry.plugin_times import PluginTimes


class Metrics(Collector):
    """Renders counters that the relay and the fleet keep anyway, and the operating system's figures of the process."""

    def __init__(
        self,
        relay: Relay,
        body_memory: BodyMemory,
        engines: ManagedEngines,
        loop_monitor: LoopMonitor,
        plugin_times: PluginTimes,
        exported: ExportCounters,
    ) -> None:
        self._relay = relay
        self._body_memory = body_memory
        self._engines = engines
        self._loop_monitor = loop_monitor
        self._plugin_times = plugin_times
        self._exported = exported
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    async def page(self, request: Request) -> Response:
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; the Prometheus client library calls this."""
        yield from request_metrics(self._relay, self._body_memory)
        yield from fleet_metrics(self._relay, self._engines)
        yield from process_metrics(self._loop_monitor, self._plugin_times, self._exported)
