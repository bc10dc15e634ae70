"""Metrics for Prometheus: ``GET /metrics`` and ``GET /metrics/engines``, unless ``telemetry.metrics`` is false."""

from __future__ import annotations

from typing import Any

from enginehouse import Register, hookimpl


@hookimpl
def register_routes(register: Register[Any]) -> None:
    """Offer the pages, for everyone."""
    register("metrics", _pages)


def _pages() -> Any:
    """``/metrics`` and ``/metrics/engines``."""
    from starlette.routing import Route

    from enginehouse_metrics.engines import EngineMetrics
    from enginehouse_metrics.page import metrics_page

    return [Route("/metrics", metrics_page), Route("/metrics/engines", EngineMetrics().page)]
