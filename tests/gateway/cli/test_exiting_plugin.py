"""A plugin whose asynchronous methods raise ``SystemExit`` or ``KeyboardInterrupt`` ends no request and no gateway."""

from __future__ import annotations

from pathlib import Path

from enginehouse_kit.engines import SimEngine
from enginehouse_kit.gateway import RunningGateway
from tests.support import plain_httpx
from tests.support.plugins import Install

EXITS = """
import sys
from starlette.routing import Route
from enginehouse_kit.drivers import OpenAICompatibleDriver

class Exits(Driver):
    async def healthy(self, engine):
        sys.exit(3)
    async def models(self, engine):
        sys.exit(3)

class Interrupted(OpenAICompatibleDriver):
    async def models(self, engine):
        raise KeyboardInterrupt
    async def concurrency(self, engine):
        sys.exit(3)

class Launches(Launcher):
    async def launch(self, name, line, output):
        sys.exit(3)
    async def adopt(self, name, line, handle, output):
        sys.exit(3)

async def leave(request):
    sys.exit(3)

@hookimpl
def register_drivers(register):
    register("exits", Exits)
    register("interrupted", Interrupted)

@hookimpl
def register_launchers(register):
    register("exiting", Launches)

@hookimpl
def register_routes(register):
    register("leave", lambda: [Route("/leave", leave)])
"""
CONFIG = """
[checks]
interval = "50ms"
[hosts.local]
launcher = "exiting"
[models.launched]
command = "engine ${{port}}"
[backends.gone]
url = "{url}"
driver = "exits"
models = ["gone"]
[backends.good]
url = "{url}"
driver = "interrupted"
models = ["m"]
"""


def test_a_gateway_outlives_plugins_that_exit(install: Install, tmp_path: Path) -> None:
    install("acme", EXITS)
    with (
        SimEngine("m") as engine,
        RunningGateway(CONFIG.format(url=engine.url), {"PYTHONPATH": str(tmp_path)}) as gateway,
        plain_httpx.Client(base_url=gateway.url, timeout=30) as client,
    ):
        gateway.until_health(good="healthy", gone="unhealthy")
        assert client.get("/leave", headers={"connection": "close"}).status_code == 500

        refused = client.post("/v1/completions", json={"model": "launched", "prompt": "Hello"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (500, "plugin_failed")
        assert "launcher 'exiting' of plugin 'acme' failed with SystemExit" in refused.json()["error"]["message"]

        served = client.post("/v1/completions", json={"model": "m", "prompt": "Hello", "max_tokens": 2})
        assert served.status_code == 200
        log = gateway.log
    for failure in ("driver 'exits'", "driver 'interrupted'", "launcher 'exiting'"):
        assert f"The {failure} of plugin 'acme' failed with" in log
    assert "sys.exit(3)" in log, "the traceback is in the log"
