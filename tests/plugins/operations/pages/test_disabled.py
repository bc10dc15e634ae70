"""A gateway without the plugin: its own pages work, and those of the plugin are not there."""

from __future__ import annotations

import httpx
import pytest

from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from tests.support import plain_httpx

CORE = (
    "/health",
    "/v1/models",
    "/metrics",
    "/api/keys",
    "/dashboard",
)
OF_THE_PLUGIN = ("/api/events", "/api/logs/proxy", "/logs", "/logs/stream", "/api/history", "/api/history/models")
STATES = ("/api/status", "/api/requests", "/api/decisions", "/running")
AND = (
    "/api/series",
    "/api/usage",
    "/v1/usage",
    "/v1/limits",
    "/api/audit",
    "/api/cluster",
    "/api/migrations",
    "/api/scale",
)


@pytest.mark.parametrize(("paths", "status"), [(CORE, 200), ((*OF_THE_PLUGIN, *STATES, *AND), 404)])
async def test_a_gateway_works_without_it(paths: tuple[str, ...], status: int) -> None:
    gateway = Gateway(Config(), load_plugins(PluginSettings(disabled=["operations"])).registry)
    gateway.build_hosts()
    transport = httpx.ASGITransport(gateway.application)
    async with plain_httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert {path: (await client.get(path)).status_code for path in paths} == dict.fromkeys(paths, status)
