"""``GET /metrics``, in Prometheus's text format, or in OpenMetrics' if the client accepts it."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Callable, Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE_OPEN
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from enginehouse.pages import PageFacts

_OPEN_METRICS = "application/openmetrics-text"
_LONGEST_REST_S = 2.0
_WEIGHT = re.compile(r"[01](\.\d{0,3})?")


class Families(CollectorRegistry):
    """What Prometheus's library writes as a page: the families that ``families`` returns."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        super().__init__()
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()


class GatewayMetrics:
    """Writes the page: one at a time, since anyone may ask for it, and a page of many replicas takes seconds.

    Requests that come before the next one is begun share it.
    """

    def __init__(self) -> None:
        self._next: dict[bool, asyncio.Task[bytes]] = {}
        self._turn = asyncio.Lock()
        self._free_at = 0.0

    async def page(self, request: Request) -> Response:
        """The gateway's metrics. 404 if the configuration wants no pages of metrics."""
        facts = shown_facts(request)
        accepts = _weights(request.headers.get("accept", ""))
        opened = accepts.get(_OPEN_METRICS, 0) > 0 and accepts[_OPEN_METRICS] >= accepts.get("text/plain", 0)
        if opened not in self._next:
            self._next[opened] = asyncio.ensure_future(self._made(facts, opened))
        data = await asyncio.shield(self._next[opened])
        headers = {"vary": "accept, accept-encoding"}
        if _weights(request.headers.get("accept-encoding", "")).get("gzip", 0) > 0:
            data = await asyncio.to_thread(gzip.compress, data, 1)  # a page may have megabytes
            headers["content-encoding"] = "gzip"
        return Response(data, media_type=CONTENT_TYPE_OPEN if opened else CONTENT_TYPE_LATEST, headers=headers)

    async def _made(self, facts: PageFacts, opened: bool) -> bytes:
        """The next page. After one, the gateway has as long for other things as that took, up to some seconds."""
        now = asyncio.get_running_loop().time
        async with self._turn:
            await asyncio.sleep(self._free_at - now())
            del self._next[opened]
            began, found = now(), list[Metric]()
            try:
                for each in facts.metrics():
                    found.append(each)
                    await asyncio.sleep(0)  # other things go on between two of them
                return await asyncio.to_thread(_written, found, facts.since if opened else None)
            finally:
                self._free_at = now() + min(now() - began, _LONGEST_REST_S)


def shown_facts(request: Request) -> PageFacts:
    """The facts of a gateway with pages of metrics. Raises ``HTTPException`` if it has none."""
    facts: PageFacts = request.app.state.facts
    if not facts.shows_metrics:
        raise HTTPException(404)
    return facts


def _written(found: Iterable[Metric], since: float | None) -> bytes:
    """The page; in OpenMetrics' form if it says ``since`` when counters count."""
    if since is None:
        return generate_latest(Families(lambda: found))
    page: bytes = open_metrics(Families(lambda: [with_created(each, since) for each in found]))  # type: ignore[no-untyped-call]
    return page


def with_created(metric: Metric, since: float) -> Metric:
    """A family in OpenMetrics' form, whose counters say since when they count, in seconds of the day."""
    ends = {"counter": "_total", "histogram": "_sum"}.get(metric.type)
    if ends is None:
        return metric
    made = Metric(metric.name, metric.documentation, metric.type)
    for sample in metric.samples:
        made.samples.append(sample)
        if sample.name.endswith(ends):
            made.add_sample(f"{metric.name}_created", sample.labels, since)
    return made


def _weights(accepted: str) -> dict[str, float]:
    """What a header ``accept`` or ``accept-encoding`` names, with the best weight of each (RFC 9110, 12.4.2)."""
    weights: dict[str, float] = {}
    for name, *parameters in (each.split(";") for each in accepted.lower().split(",")):
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.strip().partition("=")
            if key == "q":
                weight = float(value) if _WEIGHT.fullmatch(value) else 0.0
        weights[name.strip()] = max(weight, weights.get(name.strip(), 0.0))
    return weights
