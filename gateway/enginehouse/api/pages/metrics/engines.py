"""``GET /metrics/engines``: the metrics of all engines as one page, with a label ``backend``.

The metrics of a model that has a page of its own at its engine also get a label ``model``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import quote

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.responses import Response

from enginehouse.api.pages.metrics.families import Families
from enginehouse.domain.errors import RequestError
from enginehouse.relay.context import RelayContext
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream

_TIMEOUT_S = 5.0
_OF_MODEL = "{model}"
_THEIRS = "exported_{}"
"""The name of an engine's own label that the gateway sets too, as Prometheus renames such labels."""


class MetricsPage(NamedTuple):
    """A page of an engine's metrics; ``model`` is empty if it is about all of its models."""

    backend: str
    path: str
    model: str = ""

    @property
    def labels(self) -> dict[str, str]:
        """The labels that the gateway adds."""
        return {"backend": self.backend} | ({"model": self.model} if self.model else {})


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
        pages = list(self._pages())
        texts = await asyncio.gather(*(_ask(upstream, page.path) for upstream, page in pages))
        found = {page: text for (_, page), text in zip(pages, texts, strict=True) if text}
        return await asyncio.to_thread(merged, found)  # engines have thousands of lines

    def _pages(self) -> Iterator[tuple[Upstream, MetricsPage]]:
        context = self._context
        for backend, upstream in context.upstreams.items():
            path = context.drivers[backend].figures.metrics_path
            if _OF_MODEL in path:
                for model in context.fleet.snapshot.ready_on(backend):
                    yield upstream, MetricsPage(backend, path.replace(_OF_MODEL, quote(model, safe="")), model)
            elif upstream.pool.origin.host:
                yield upstream, MetricsPage(backend, path)


async def _ask(upstream: Upstream, path: str) -> str:
    try:
        answer = await Client(upstream, _TIMEOUT_S).request("GET", path)
    except RequestError:
        return ""
    return answer.body.decode(errors="replace") if answer.status == 200 else ""


def merged(texts: Mapping[MetricsPage, str]) -> bytes:
    """One page of several. A page that cannot be read is left out."""
    families: dict[str, Metric] = {}
    for page, text in texts.items():
        ours = page.labels
        for family in _families(text):
            all_of_it = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                theirs = {_THEIRS.format(key) if key in ours else key: value for key, value in sample.labels.items()}
                all_of_it.samples.append(sample._replace(labels=ours | theirs))
    return generate_latest(Families(families.values))


def _families(text: str) -> list[Metric]:
    try:
        return list(text_string_to_metric_families(text))
    except ValueError:
        return []
