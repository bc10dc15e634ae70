"""What bundled services and observers add to a gateway: metrics and pages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from starlette.routing import BaseRoute

from enginehouse import Service
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.services import MetricInfo
from enginehouse_callers import Callers
from enginehouse_kit.testing import FakeServiceGateway
from enginehouse_metrics.metric_list import ALL

_REGISTRY = load_plugins(PluginSettings(enabled=[])).registry


def _services() -> Sequence[Service]:
    return [_REGISTRY.create("service", type) for type in _REGISTRY.types("service")]


def metrics_with(services: Collection[str]) -> Sequence[MetricInfo]:
    """The metrics of a gateway in which these services run, but for those of the process."""
    return [
        *ALL,
        *Callers.metrics,
        *(metric for type in _REGISTRY.types("observer") for metric in _REGISTRY.get("observer", type).factory.metrics),
        *(metric for type in services for metric in _REGISTRY.create("service", type).metrics),
    ]


EVERY_METRIC = tuple(metrics_with(_REGISTRY.types("service")))
"""Every metric but those of the process."""


def service_pages() -> Sequence[BaseRoute]:
    """The pages that bundled services add when they start."""

    async def started() -> Sequence[BaseRoute]:
        with TemporaryDirectory() as folder:
            gateway, services = FakeServiceGateway(Path(folder)), _services()
            for service in services:
                service.prepare(gateway)
                await _finished(service.start(gateway))
            gateway.close()
            routes = [*gateway.routes]
            for service in services:
                await _finished(service.stop())
        return routes

    return asyncio.run(started())


async def _finished(made: Awaitable[None] | None) -> None:
    if made is not None:
        await made
