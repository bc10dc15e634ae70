"""``GET /metrics/engines``: the metrics of all engines as one page, with a label ``backend``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from enginehouse.domain.errors import RequestError
from enginehouse.relay.context import RelayContext
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream

_TIMEOUT_S = 5.0
_LABEL = "backend"
_THEIRS = "exported_backend"
"""The name of an engine's own label ``backend``, as Prometheus renames such labels."""


class EngineMetrics:
    """Asks every engine that can be reached for its ``/metrics``. Engines that have no such page are left out.

    Requests that come while the engines are being asked share the answer.
    """

    def __init__(self, context: RelayContext) -> None:
        self._context = context
        self._asking: asyncio.Task[bytes] | None = None

    async def page(self, request: Request) -> Response:
        if self._asking is None:
            self._asking = asyncio.ensure_future(self._ask_all())
            self._asking.add_done_callback(self._answered)
        return Response(await asyncio.shield(self._asking), media_type=CONTENT_TYPE_LATEST)

    def _answered(self, _: asyncio.Task[bytes]) -> None:
        self._asking = None

    async def _ask_all(self) -> bytes:
        upstreams = [upstream for upstream in self._context.upstreams.values() if upstream.pool.origin.host]
        pages = await asyncio.gather(*map(_ask, upstreams))
        texts = {upstream.name: page for upstream, page in zip(upstreams, pages, strict=True) if page}
        return await asyncio.to_thread(merged, texts)  # engines have thousands of lines


async def _ask(upstream: Upstream) -> str:
    try:
        answer = await Client(upstream, _TIMEOUT_S).request("GET", "/metrics")
    except RequestError:
        return ""
    return answer.body.decode(errors="replace") if answer.status == 200 else ""


def merged(texts: Mapping[str, str]) -> bytes:
    """One page of the pages of several engines, by backend. A page that is none is left out."""
    families: dict[str, Metric] = {}
    for backend, text in texts.items():
        for family in _families(text):
            all_of_it = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                labels = {_THEIRS if name == _LABEL else name: value for name, value in sample.labels.items()}
                all_of_it.samples.append(sample._replace(labels={_LABEL: backend, **labels}))
    registry = CollectorRegistry()
    registry.register(_Families(families))
    return generate_latest(registry)


def _families(text: str) -> list[Metric]:
    try:
        return list(text_string_to_metric_families(text))
    except ValueError:
        return []


class _Families(Collector):
    def __init__(self, families: Mapping[str, Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families.values()
