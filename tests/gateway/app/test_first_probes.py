"""A gateway answers before its backends have."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from enginehouse.app import Gateway
from enginehouse.app import gateway as gateway_module
from enginehouse.config.schema import Config
from enginehouse.engines.state_file import StateFile
from enginehouse.plugin_manager.discovery import load_plugins
from tests.support.served_gateway import serve
from tests.support.waiting import within


async def test_a_silent_backend_delays_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: connections.append(writer), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    config = msgspec.convert({"backends": {"a": {"url": url}}, "checks": {"timeout": 60.0}}, Config)
    monkeypatch.setattr(gateway_module, "_SILENCE_S", 60.0)
    gateway = Gateway(config, load_plugins(config.plugins).registry)
    gateway.build_hosts(StateFile(tmp_path))

    await gateway.start()
    settled = asyncio.ensure_future(gateway.settled())
    served, server = await serve(gateway, "gateway")
    assert (await served.ask(served.get("/health"))).status == 200
    ready = await served.ask(served.get("/ready"))
    refused = await served.ask()
    assert ready.status == refused.status == 503
    assert refused.code == "no_healthy_backend"
    assert refused.header("retry-after") is not None
    assert not settled.done()

    for client in served.clients:
        client.close()
    server.close()
    await gateway.stop()
    await within(settled)
    for writer in connections:
        writer.close()
    silent.close()
