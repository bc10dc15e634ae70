"""``GET /metrics``, in Prometheus's text format, or in OpenMetrics' if the client accepts it."""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Callable, Iterable, Iterator
from time import time

from prometheus_client import CONTENT_TYPE_LATEST, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as CONTENT_TYPE_OPEN
from prometheus_client.openmetrics.exposition import generate_latest as open_metrics
from starlette.requests import Request
from starlette.responses import Response

from enginehouse.api.pages.metrics.families import Families, with_created

_OPEN_METRICS = "application/openmetrics-text"
_WEIGHT = re.compile(r"[01](\.\d{0,3})?")


class Metrics(Families):
    """Shows families of the gateway's counters, and the operating system's figures of the process."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        super().__init__(families)
        self._since = time()
        self._process = ProcessCollector(registry=None)

    async def page(self, request: Request) -> Response:
        accepts = _weights(request.headers.get("accept", ""))
        opened = accepts.get(_OPEN_METRICS, 0) > 0 and accepts[_OPEN_METRICS] >= accepts.get("text/plain", 0)
        data = self._opened() if opened else generate_latest(self)
        headers = {"vary": "accept, accept-encoding"}
        if _weights(request.headers.get("accept-encoding", "")).get("gzip", 0) > 0:
            data = await asyncio.to_thread(gzip.compress, data, 1)  # a page may have megabytes
            headers["content-encoding"] = "gzip"
        return Response(data, media_type=CONTENT_TYPE_OPEN if opened else CONTENT_TYPE_LATEST, headers=headers)

    def _opened(self) -> bytes:
        families = Families(lambda: (with_created(each, self._since) for each in self.collect()))
        page: bytes = open_metrics(families)  # type: ignore[no-untyped-call]
        return page

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; the Prometheus client library calls this."""
        yield from super().collect()
        yield from self._process.collect()


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
