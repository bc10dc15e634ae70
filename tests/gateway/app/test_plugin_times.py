"""The times of all plugins on the way of a request, as ``/metrics`` shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import httpx
import msgspec
import pytest

from enginehouse import Candidate, Requirements, Scorer
from enginehouse.aio.serving import SERVING
from enginehouse.app import Gateway
from enginehouse.config.schema import Config, PluginSettings
from enginehouse.plugin_manager.discovery import load_plugins
from enginehouse.plugin_manager.registry import Registered
from enginehouse.routing.body.read import read_request
from enginehouse_kit.testing import candidate
from tests.support import plain_httpx
from tests.support.routing import make_snapshot, take_route


class Even(Scorer):
    def score(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[float]:
        return [50] * len(candidates)


CONFIG = {
    "models": {"m": {"driver": "sim"}},
    "routing": {"strategy": "weighted", "scorers": [{"type": "even", "name": "mine", "weight": 1}]},
}


async def test_metrics_show_how_long_plugins_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SERVING, "is_stopping", lambda: False)
    registry = load_plugins(PluginSettings()).registry
    origin = {"entry_point": "acme", "module": "acme", "distribution": "acme", "version": "1"}
    registry.add([Registered(kind="scorer", type="even", factory=Even, **origin)])
    gateway = Gateway(msgspec.convert(CONFIG, Config), registry)
    body = b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}'
    request = read_request("/v1/chat/completions", [], body)
    snapshot = make_snapshot(candidate("a", "m"), candidate("b", "m"))
    router = gateway.relay.context.router
    for _ in range(3):
        gateway.every_second.sample()
        take_route(router, router.requirements(request), snapshot)
        take_route(router, router.requirements(request), snapshot)  # no sample

    transport = httpx.ASGITransport(gateway.application)
    async with plain_httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        page = (await client.get("/metrics")).text
    counts = re.findall(
        r'^enginehouse_plugin_seconds_count\{kind="(\w+)",name="(\w+)",type="(\w+)"\} 3\.0$', page, re.M
    )
    assert ("scorer", "mine", "even") in counts
    assert ("strategy", "weighted", "weighted") in counts
    assert {kind for kind, _, _ in counts} == {"extractor", "filter", "scorer", "strategy"}
