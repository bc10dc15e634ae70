"""``GET /metrics`` beside what else the event loop has to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.core import GaugeMetricFamily, Metric
from starlette.applications import Starlette
from starlette.routing import Route

from enginehouse_metrics import page
from enginehouse_metrics.page import GatewayMetrics
from tests.support import plain_httpx
from tests.support.page_facts import page_facts


class Gateway:
    """A gateway with two metrics. ``begun``: how many pages were begun; ``turns``: of the event loop meanwhile."""

    def __init__(self) -> None:
        self.value = self.begun = self.turns = 0
        application = Starlette(routes=[Route("/metrics", GatewayMetrics().page)])
        application.state.facts = page_facts(metrics=self.metrics, shows_metrics=True)
        transport = httpx.ASGITransport(application)
        self.client = plain_httpx.AsyncClient(transport=transport, base_url="http://gateway")

    def metrics(self) -> Iterator[Metric]:
        self.begun += 1
        asyncio.get_running_loop().call_soon(self._turn)
        yield GaugeMetricFamily("first", "", value=self.value)
        yield GaugeMetricFamily("second", "", value=self.turns)

    def _turn(self) -> None:
        self.turns += 1

    async def read(self) -> dict[str, float]:
        text = (await self.client.get("/metrics")).text
        lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in lines}


async def test_other_things_go_on_between_two_metrics() -> None:
    assert await Gateway().read() == {"first": 0.0, "second": 1.0}


async def test_many_readers_share_pages_and_none_of_them_is_old() -> None:
    gateway = Gateway()

    async def read_later(number: int) -> bool:
        for _ in range(number):
            await asyncio.sleep(0)
        gateway.value = number
        return (await gateway.read())["first"] >= number

    assert all(await asyncio.gather(*map(read_later, range(30))))
    assert gateway.begun < 6


async def test_a_page_that_fails_keeps_no_other_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway()
    monkeypatch.setattr(page, "_written", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        await gateway.read()
    monkeypatch.undo()
    assert (await gateway.read())["first"] == 0.0
