"""The dashboard: what everyone may read, and what its script asks the gateway for."""

from __future__ import annotations

import re

import httpx
import msgspec
import pytest
from starlette.routing import Match

from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.testing import check_routes, create
from tests.support import plain_httpx
from tests.support.installed_plugins import installed_plugins

KEYS = {"auth": {"keys": [{"name": "boss", "key": "k-boss", "admin": True}]}}
PAGE, SCRIPT, STYLE = "/dashboard", "/dashboard/dashboard.js", "/dashboard/dashboard.css"
CALL = re.compile(r"""["`](/api/[^"`]*)["`]""")
VARIABLE = re.compile(r"\$\{[^}]*\}")


def gateway(**sections: object) -> Gateway:
    return Gateway(msgspec.convert(sections, Config), installed_plugins())


def client(of: Gateway) -> httpx.AsyncClient:
    return plain_httpx.AsyncClient(transport=httpx.ASGITransport(of.application), base_url="http://localhost")


def test_it_keeps_the_rules_of_routes() -> None:
    check_routes(lambda: create("routes", "dashboard"))


@pytest.mark.parametrize(
    ("path", "media_type"), [(PAGE, "text/html"), (SCRIPT, "text/javascript"), (STYLE, "text/css")]
)
async def test_everyone_may_read_it_and_no_other_page_may_frame_it(path: str, media_type: str) -> None:
    async with client(gateway(**KEYS)) as reader:
        answer = await reader.get(path)
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, media_type)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_page_takes_everything_from_this_gateway() -> None:
    async with client(gateway()) as reader:
        page = (await reader.get(PAGE)).text
        linked = re.findall(r'(?:src|href)="([^"]*)"', page)
        assert sorted(linked) == sorted([STYLE, SCRIPT, "data:,"])
        script = (await reader.get(SCRIPT)).text
    assert set(re.findall(r'at\("([^"]*)"\)', script)) <= set(re.findall(r' id="([^"]*)"', page))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?:", script)


async def test_the_gateway_has_every_page_that_the_script_calls() -> None:
    served = gateway()
    async with client(served) as reader:
        script = (await reader.get(SCRIPT)).text
    calls = {VARIABLE.sub("x", path.partition("?")[0]) for path in CALL.findall(script)}
    assert calls > {
        "/api/status",
        "/api/events",
        "/api/logs/x",
        "/api/models/x",
        "/api/requests/x",
        "/api/backends/x/x",
    }
    verbs = {"/api/models/x": "load", "/api/requests/x": "move", "/api/backends/x/x": ""}
    for path in calls:
        assert known(served, f"{path}/{verbs[path]}" if verbs.get(path) else path.replace("x/x", "x/drain")), path
    assert not known(served, "/api/nonsense")


def known(served: Gateway, path: str) -> bool:
    """Whether the gateway has a page at ``path``, whatever its method."""
    scope = {"type": "http", "method": "GET", "path": path, "headers": []}
    return any(route.matches(scope)[0] is not Match.NONE for route in served.application.routes)


async def test_it_can_be_disabled() -> None:
    registry = load_plugins(PluginSettings(disabled=["dashboard"])).registry
    async with client(Gateway(Config(), registry)) as reader:
        assert (await reader.get(PAGE)).status_code == 404
