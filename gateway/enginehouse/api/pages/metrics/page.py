"""``GET /metrics``, in Prometheus's text format, or in OpenMetrics' if the client accepts it."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Callable, Iterator, Sequence
from time import time

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE_OPEN
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from enginehouse.api.doors.body_memory import BodyMemory
from enginehouse.api.pages.metrics.families import Families, numbers, with_created
from enginehouse.api.pages.metrics.fleet import discovery_metrics, fleet_metrics, scale_metrics
from enginehouse.api.pages.metrics.process import WorkerFigures, process_metrics, worker_metrics
from enginehouse.api.pages.metrics.requests import request_metrics
from enginehouse.domain.discovery_status import DiscoveryStatus
from enginehouse.domain.scale_status import ScaleStatus
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.interfaces.exporters import ExportCounters
from enginehouse.interfaces.limit_stores import LimitStore
from enginehouse.relay.relay import Relay
from enginehouse.telemetry import metric_list as metrics
from enginehouse.telemetry.loop_watch import LoopMonitor
from enginehouse.telemetry.plugin_times import PluginTimes

_OPEN_METRICS = "application/openmetrics-text"
_WEIGHT = re.compile(r"[01](\.\d{0,3})?")


class Metrics(Collector):
    """Renders counters that the relay and the fleet keep anyway, and the operating system's figures of the process.

    ``workers``: their figures, if there are any.
    """

    def __init__(
        self,
        relay: Relay,
        body_memory: BodyMemory,
        engines: ManagedEngines,
        loop_monitor: LoopMonitor,
        plugin_times: PluginTimes,
        exported: ExportCounters,
        sources: Callable[[], Sequence[DiscoveryStatus]],
        scaled: Callable[[], Sequence[ScaleStatus]],
        limits: LimitStore,
    ) -> None:
        self._limits = limits
        self.workers = WorkerFigures({}, {})
        self._relay = relay
        self._body_memory = body_memory
        self._engines = engines
        self._loop_monitor = loop_monitor
        self._plugin_times = plugin_times
        self._exported = exported
        self._sources = sources
        self._scaled = scaled
        self._since = time()
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    async def page(self, request: Request) -> Response:
        accepts = _weights(request.headers.get("accept", ""))
        opened = accepts.get(_OPEN_METRICS, 0) > 0 and accepts[_OPEN_METRICS] >= accepts.get("text/plain", 0)
        data = self._opened() if opened else generate_latest(self.registry)
        headers = {"vary": "accept, accept-encoding"}
        if _weights(request.headers.get("accept-encoding", "")).get("gzip", 0) > 0:
            data = await asyncio.to_thread(gzip.compress, data, 1)  # a page may have megabytes
            headers["content-encoding"] = "gzip"
        return Response(data, media_type=CONTENT_TYPE_OPEN if opened else CONTENT_TYPE_LATEST, headers=headers)

    def _opened(self) -> bytes:
        families = Families(lambda: (with_created(each, self._since) for each in self.registry.collect()))
        page: bytes = open_metrics(families)  # type: ignore[no-untyped-call]
        return page

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; the Prometheus client library calls this."""
        yield from request_metrics(self._relay, self._body_memory)
        yield from fleet_metrics(self._relay, self._engines)
        yield from discovery_metrics(self._sources())
        yield from scale_metrics(self._scaled())
        yield numbers(metrics.LIMITS_ALONE, [([], bool(self._limits.problem()))])
        yield from worker_metrics(self.workers)
        yield from process_metrics(self._loop_monitor, self._plugin_times, self._exported)


def _weights(accepted: str) -> dict[str, float]:
    """What a header ``accept`` or ``accept-encoding`` names, with the best weight of each (RFC 9110, 12.4.2)."""
    weights: dict[str, float] = {}
    for name, *parameters in (each.split(";") for each in accepted.lower().split(",")):
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.strip().partition("=")
            if key == "q":
                weight = float(value) if _WEIGHT.fullmatch(value) else 0.0
        weights[name.strip()] = max(weight, weights.get(name.strip(), 0.0))
    return weights
