"""Metrics for Prometheus: ``GET /metrics`` and ``GET /metrics/engines``, unless ``telemetry.metrics`` is false."""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_routes(register: Register[Any]) -> None:
    """Offer the pages, for everyone, and measure what they show."""
    register("metrics", _pages)


def _pages() -> Any:
    """``/metrics`` and ``/metrics/engines``."""
    from prometheus_client import ProcessCollector
    from starlette.routing import Route

    from enginehouse.pages import guarded
    from enginehouse_metrics.engines import EngineMetrics
    from enginehouse_metrics.families import families
    from enginehouse_metrics.page import GatewayMetrics

    process = ProcessCollector(registry=None)
    measures = [*guarded([], measure=families), *guarded([], measure=lambda _: process.collect())]
    return [*measures, Route("/metrics", GatewayMetrics().page), Route("/metrics/engines", EngineMetrics().page)]
