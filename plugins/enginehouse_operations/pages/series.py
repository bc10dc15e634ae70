"""``GET /api/series``: figures over time."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import inf, nan
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from enginehouse import InvalidRequest
from enginehouse.pages import ModelTotals, PageFacts, json_response
from enginehouse.settings import did_you_mean
from enginehouse_operations.pages.reading import facts_of, read_query, read_time

By = Literal["", "model", "backend", "gpu", "host"]
_RATES: Final = ("requests", "failed", "refused", "left", "tokens_in", "tokens_out")
UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **dict.fromkeys(_RATES, "1/s"),
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
_SECONDS: Final = 15 * 60
_MINUTES: Final = 24 * 60
_MOST_NAMES: Final = 28
"""With all metrics in all buckets, so many models and as many backends take 7.4 MB."""
_IDLE_S: Final = _SECONDS
_OTHER: Final = "other"


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
    asked = int(since // ring.step)
    first = max(min(asked, (ring.newest or asked) + 1), ring.newest - ring.size + 1, 0)
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


class Amounts:
    """Counts of ended requests and their tokens, and of two of their times. The fields are those of ``ModelTotals``."""

    def __init__(self) -> None:
        self.requests = self.failed = self.refused = self.left = 0
        self.tokens_in = self.tokens_cached = self.tokens_out = 0
        self.first_token: dict[float, int] = {}
        self.inter_token: dict[float, int] = {}

    def add(self, other: Amounts | ModelTotals, sign: int = 1) -> None:
        """Count what ``other`` counts, too; with a ``sign`` of -1, no longer."""
        for name in (*_RATES, "tokens_cached"):
            setattr(self, name, getattr(self, name) + sign * getattr(other, name))
        for mine, theirs in ((self.first_token, other.first_token), (self.inter_token, other.inter_token)):
            if not mine:
                mine.update(theirs)
                continue
            for bound, count in theirs.items():
                if count:
                    mine[bound] += sign * count

    def figures(self, seconds: float) -> Iterator[tuple[str, float]]:
        """The values of metrics, if this is what ended within so many ``seconds``."""
        for name in _RATES:
            yield name, getattr(self, name) / seconds
        if self.tokens_in:
            yield "cached_ratio", self.tokens_cached / self.tokens_in
        for name, counts in (("ttft", self.first_token), ("itl", self.inter_token)):
            if any(counts.values()):
                yield f"{name}_ms_p50", 1000 * quantile(0.5, counts)
                yield f"{name}_ms_p99", 1000 * quantile(0.99, counts)


def quantile(share: float, counts: Mapping[float, int]) -> float:
    """The value that the ``share`` of those counted does not exceed. ``counts``: of each bound, in ascending order.

    Within a bucket, values are taken as evenly spread, as Prometheus's ``histogram_quantile`` does. Above the last
    finite bound, the value is that bound.
    """
    rank, below, lower = share * sum(counts.values()), 0, 0.0
    for bound, count in counts.items():
        if bound == inf:
            break
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below, lower = below + count, bound
    return lower


_NO_FIGURES: Final = (*Amounts().figures(1),)
"""The figures of a second in which no request ended."""


class SeriesKey(NamedTuple):
    """What a value is about: a ``model``, a ``backend``, a ``gpu``, or, with two empty texts, the whole gateway."""

    by: str
    name: str


WHOLE: Final = SeriesKey("", "")


class BucketRing:
    """The values of the last ``size`` buckets of ``step`` seconds, four bytes each, by metric and key.

    Buckets are numbered: number ``n`` holds the time from ``n * step`` to ``(n + 1) * step`` since the Unix epoch.
    """

    def __init__(self, step: int, size: int) -> None:
        self.step = step
        self.size = size
        self.newest = 0
        """The number of the newest bucket; 0 before the first."""
        self._values: dict[tuple[str, SeriesKey], array[float]] = {}

    def begin(self, number: int) -> None:
        """Begin the bucket ``number``. Those that were left out have no values. An earlier one starts over."""
        first = self.newest + 1 if number > self.newest else number
        for skipped in range(max(first, number - self.size + 1), number + 1):
            for values in self._values.values():
                values[skipped % self.size] = nan
        self.newest = number

    def put(self, metric: str, key: SeriesKey, value: float) -> None:
        """Set a value of the newest bucket."""
        values = self._values.get((metric, key))
        if values is None:
            values = self._values[metric, key] = array("f", [nan]) * self.size
        values[self.newest % self.size] = value

    def forget(self, key: SeriesKey) -> None:
        """Remove all values of ``key``."""
        for metric, kept in list(self._values):
            if kept == key:
                del self._values[metric, kept]

    def keys(self, metric: str) -> Iterator[SeriesKey]:
        """The keys that have values of ``metric``."""
        return (key for each, key in self._values if each == metric)

    def values(self, metric: str, key: SeriesKey, first: int) -> list[float | None]:
        """The values from bucket ``first`` to the newest; ``None`` where there is none."""
        kept = self._values.get((metric, key))
        numbers = range(max(first, self.newest - self.size + 1), self.newest + 1)
        if kept is None:
            return [None] * len(numbers)
        return [None if (value := kept[number % self.size]) != value else value for number in numbers]


class SeriesStore:
    """Rings of one-second buckets of 15 minutes, and of one-minute buckets of 24 hours.

    ``sample`` is called once a second and reads counters that are kept anyway: a request costs nothing. At most 28
    models and 28 backends have series of their own, and each takes the place of one that was idle for 15 minutes;
    others are summed up as ``other``.
    """

    def __init__(self) -> None:
        self.seconds = BucketRing(1, _SECONDS)
        self.minutes = BucketRing(60, _MINUTES)
        self._now = 0.0
        self._counted: dict[tuple[str, str], ModelTotals] = {}
        self._this_minute: dict[SeriesKey, Amounts] = {}
        self._gauge_sums: dict[tuple[str, SeriesKey], tuple[float, int]] = {}
        self._active: dict[SeriesKey, float] = {}
        """When each key with a series of its own last had a request or a value."""
        self._full_until: dict[str, float] = {}
        """Until then, no further model, or backend, gets a series of its own."""

    @property
    def rings(self) -> Collection[BucketRing]:
        """The finer one first."""
        return self.seconds, self.minutes

    def sample(self, facts: PageFacts) -> None:
        """Close the second that ends now, and with the last one of a minute, the minute."""
        self._now = facts.epoch()
        number = round(self._now) - 1  # timers ring a little before or after the second
        if self.seconds.newest and number // 60 != self.seconds.newest // 60:
            self._close_minute(self.seconds.newest // 60)
        self.seconds.begin(number)
        ended = self._ended_since(facts.totals())
        for key in {*ended, *self._active, WHOLE}:
            amounts = ended.get(key)
            for metric, value in _NO_FIGURES if amounts is None else amounts.figures(1):
                self.seconds.put(metric, key, value)
            if amounts is not None:
                self._this_minute.setdefault(key, Amounts()).add(amounts)
        for (metric, key), value in self._gauges_now(facts.gauges()).items():
            self.seconds.put(metric, key, value)
            total, count = self._gauge_sums.get((metric, key), (0.0, 0))
            self._gauge_sums[metric, key] = total + value, count + 1

    def _close_minute(self, number: int) -> None:
        self.minutes.begin(number)
        for key in {*self._this_minute, *self._active, WHOLE}:
            for metric, value in self._this_minute.get(key, Amounts()).figures(60):
                self.minutes.put(metric, key, value)
        for (metric, key), (total, count) in self._gauge_sums.items():
            self.minutes.put(metric, key, total / count)
        self._this_minute.clear()
        self._gauge_sums.clear()

    def _ended_since(self, totals: Iterable[ModelTotals]) -> Mapping[SeriesKey, Amounts]:
        """What has ended since the last call."""
        ended: defaultdict[SeriesKey, Amounts] = defaultdict(Amounts)
        for now in totals:
            before = self._counted.get(now[:2])
            if now == before:
                continue
            self._counted[now[:2]] = now
            new = Amounts()
            new.add(now)
            if before is not None:
                new.add(before, -1)
            ended[WHOLE].add(new)
            if now.backend:
                ended[self._named("model", now.model)].add(new)
                ended[self._named("backend", now.backend)].add(new)
        return ended

    def _gauges_now(self, gauges: Iterable[tuple[str, str, str, float]]) -> Mapping[tuple[str, SeriesKey], float]:
        """The gauges of now. Names without a series of their own are one; an active one without a queue has none."""
        found: dict[tuple[str, SeriesKey], float] = {}
        for metric, by, name, value in gauges:
            key = self._named(by, name) if by in ("model", "backend") else SeriesKey(by, name)
            before = found.get((metric, key), 0.0)
            found[metric, key] = before + value if metric == "queue" else max(before, value)
        for key in (*self._active, WHOLE):
            found.setdefault(("queue", key), 0.0)
        return found

    def _named(self, by: str, name: str) -> SeriesKey:
        """The key of a model or a backend that is active now."""
        key, now = SeriesKey(by, name), self._now
        if key not in self._active:
            if now < self._full_until.get(by, now):
                return SeriesKey(by, _OTHER)
            others = [each for each in self._active if each.by == by]
            if len(others) >= _MOST_NAMES:
                idlest = min(others, key=self._active.__getitem__)
                self._full_until[by] = self._active[idlest] + _IDLE_S
                if now < self._full_until[by]:
                    return SeriesKey(by, _OTHER)
                self._drop(idlest)
        self._active[key] = now
        return key

    def _drop(self, key: SeriesKey) -> None:
        del self._active[key]
        self._this_minute.pop(key, None)
        self._gauge_sums = {each: sums for each, sums in self._gauge_sums.items() if each[1] != key}
        for ring in self.rings:
            ring.forget(key)
