"""What bundled services add to a gateway: metrics and pages."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence

from starlette.routing import BaseRoute

from enginehouse import Service
from enginehouse.config.schema import PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.telemetry.metric_list import ALL
from enginehouse.testing import FakeServiceGateway

_REGISTRY = load_plugins(PluginSettings(enabled=[])).registry


def _services() -> Sequence[Service]:
    return [_REGISTRY.create("service", type) for type in _REGISTRY.types("service")]


EVERY_METRIC = (*ALL, *(metric for each in _services() for metric in each.metrics))
"""Every metric but those of the process."""


def service_pages() -> Sequence[BaseRoute]:
    """The pages that bundled services add when they start."""

    async def started() -> Sequence[BaseRoute]:
        gateway = FakeServiceGateway()
        for service in _services():
            service.prepare(gateway)
            made = service.start(gateway)
            if inspect.isawaitable(made):
                await made
        gateway.close()
        return gateway.routes

    return asyncio.run(started())
