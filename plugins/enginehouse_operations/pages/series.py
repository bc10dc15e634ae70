"""``GET /api/series``: figures over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse import InvalidRequest
from enginehouse.settings import did_you_mean
from enginehouse_operations.pages.reading import facts_of, json_response, read_query, read_time
from enginehouse_operations.pages.series_store import BucketRing, SeriesStore

By = Literal["", "model", "backend", "gpu", "host"]
UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "requests": "1/s",
        "failed": "1/s",
        "refused": "1/s",
        "left": "1/s",
        "tokens_in": "1/s",
        "tokens_out": "1/s",
        "ttft_ms_p50": "ms",
        "ttft_ms_p99": "ms",
        "itl_ms_p50": "ms",
        "itl_ms_p99": "ms",
        "queue": "requests",
        "cached_ratio": "ratio",
        "kv_usage": "ratio",
        "gpu_memory": "bytes",
        "gpu_utilization": "ratio",
        "engine_memory": "bytes",
        "host_memory": "bytes",
    }
)
"""Every metric and its unit. Requests and tokens are counted when a request ends.

``queue``, ``kv_usage`` and those of GPUs, engines and hosts are read as they are at the moment; a minute has the mean
of its seconds.
"""

_ALWAYS_BY: Final[Mapping[str, By]] = MappingProxyType(
    {"gpu_memory": "gpu", "gpu_utilization": "gpu", "engine_memory": "backend", "host_memory": "host"}
)
_DIGITS: Final = 6


class NamedValues(msgspec.Struct, frozen=True):
    """One line of a chart."""

    labels: dict[str, str]
    """What it is about, such as ``{"model": "llama3:8b"}``; empty for the whole gateway."""
    values: list[float | None]
    """One for each bucket, the oldest first; ``None`` where nothing is known."""


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over time, as ``GET /api/series`` shows it."""

    metric: str
    unit: str
    step: int
    """The length of a bucket in seconds."""
    from_: float = msgspec.field(name="from")
    """When the first bucket begins, in seconds since the Unix epoch."""
    series: list[NamedValues]


def read_series(
    store: SeriesStore, metric: str, by: By = "", since: float = 0.0, step: int | None = None
) -> SeriesAnswer:
    """The values of ``metric`` since then, in seconds since the Unix epoch.

    ``step``: 1 or 60 seconds; by default, the finer one that reaches back to ``since``. Raises ``InvalidRequest``.
    """
    if metric not in UNITS:
        remedy = did_you_mean(metric, list(UNITS)) or f"there are: {', '.join(UNITS)}"
        raise InvalidRequest(f"There is no metric '{metric}'; {remedy}", param="metric")
    ring = _ring(store, since, step)
    by = _ALWAYS_BY.get(metric, by)
    first = max(min(int(since // ring.step), ring.newest + 1), ring.newest - ring.size + 1, 0)
    lines = [
        NamedValues({by: key.name} if by else {}, [_rounded(value) for value in ring.values(metric, key, first)])
        for key in sorted(set(ring.keys(metric)))
        if key.by == by
    ]
    return SeriesAnswer(metric=metric, unit=UNITS[metric], step=ring.step, from_=float(first * ring.step), series=lines)


def _ring(store: SeriesStore, since: float, step: int | None) -> BucketRing:
    seconds, minutes = store.rings
    if step is None:
        return seconds if since // 1 >= seconds.newest - seconds.size else minutes
    if step not in (seconds.step, minutes.step):
        raise InvalidRequest(f"step is {seconds.step} or {minutes.step} seconds, not {step}", param="step")
    return seconds if step == seconds.step else minutes


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, _DIGITS)


class SeriesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """``since``: seconds since the Unix epoch, or how long ago, such as ``15m``."""

    metric: str
    by: Literal["", "model", "backend", "gpu"] = ""
    since: str = "15m"
    step: int | None = None


class SeriesPage:
    """Shows what ``store`` keeps."""

    def __init__(self, store: SeriesStore) -> None:
        self._store = store

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/api/series", self.answer)]

    async def answer(self, request: Request) -> Response:
        """The values of one metric, of the whole gateway or by model, backend or GPU."""
        query = read_query(request.query_params, SeriesQuery, "metric is a name, step a number of seconds")
        since = read_time(query.since, facts_of(request).epoch())
        return json_response(read_series(self._store, query.metric, query.by, since, query.step))
