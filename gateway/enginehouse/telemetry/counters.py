"""Counters and histograms of finished requests: cheap to update, rendered only for a scrape."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from enginehouse.domain.errors import shortened
from enginehouse.domain.request_facts import RequestFacts
from enginehouse.interfaces.exporters import SwapRecord
from enginehouse.interfaces.observers import Observer
from enginehouse.telemetry import metric_list as metrics
from enginehouse.telemetry.metric_list import MetricInfo
from enginehouse.telemetry.newest_series import NewestSeries

_LAST_SWAPS: Final = 64
_MAX_SERIES: Final = 1000
OTHER: Final = "other"
"""The value of a label when there are too many series."""

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the histograms' buckets, in seconds."""
SHORT_BUCKETS = (25e-6, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Those of times that are short."""


class Histogram:
    """The number of times observed in each bucket, by upper ``bounds``; the last bucket has none.

    ``exemplars``: the last traced request of each bucket, with its time.
    """

    __slots__ = ("_place", "bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...] = BUCKETS) -> None:
        self.bounds = bounds
        self._place = 0
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.exemplars: dict[int, tuple[str, float]] = {}

    def note(self, seconds: float, trace_id: str) -> None:
        """Keep the trace of a request that took so long as the example of its bucket."""
        self.exemplars[bisect_left(self.bounds, seconds)] = (trace_id, seconds)

    def observe(self, seconds: float) -> None:
        bounds, place = self.bounds, self._place  # most times fall into the bucket of the one before, or near it
        while place and seconds <= bounds[place - 1]:
            place -= 1
        while place < len(bounds) and seconds > bounds[place]:
            place += 1
        self._place = place
        self.counts[place] += 1
        self.total += seconds


class KeyCounts:
    """What one key has had of one model on one backend.

    Most requests end as the one before, so those in a row with one status and reason are added to a dict together.
    Tokens of answers are ``from_usage`` of an engine, or counted ``from_chunks``.
    """

    __slots__ = (
        "_reason",
        "_requests",
        "_row",
        "_status",
        "cached_tokens",
        "from_chunks",
        "from_usage",
        "input_tokens",
    )

    def __init__(self) -> None:
        self.input_tokens = self.cached_tokens = self.from_usage = self.from_chunks = 0
        self._requests: defaultdict[tuple[int, str], int] = defaultdict(int)
        self._row = self._status = 0
        self._reason = ""

    @property
    def requests(self) -> defaultdict[tuple[int, str], int]:
        """Their number by status and reason."""
        self._end_row()
        return self._requests

    def add(self, facts: RequestFacts) -> None:
        """Count a request."""
        if facts.status != self._status or facts.reason != self._reason:
            self._end_row()
            self._status, self._reason = facts.status, facts.reason
        self._row += 1
        if (tokens := facts.tokens_out) is not None:
            self.input_tokens += facts.tokens_in or 0
            self.cached_tokens += facts.tokens_cached or 0
            self.from_usage += tokens
        else:
            self.from_chunks += facts.events

    def _end_row(self) -> None:
        if self._row:
            self._requests[self._status, self._reason] += self._row
            self._row = 0


HISTOGRAMS: Final[tuple[str, ...]] = (
    "duration",
    "first_byte",
    "first_token",
    "inter_token",
    "overhead",
    "routing",
    "queue_wait",
)
"""The attributes of ``Series`` that are histograms."""


class Series:
    """Counters and histograms of one model on one backend.

    ``keys``: what each key has had, by its name; empty without keys.
    """

    __slots__ = (
        "duration",
        "first_byte",
        "first_token",
        "inter_token",
        "keys",
        "overhead",
        "queue_wait",
        "routing",
    )

    def __init__(self) -> None:
        self.keys: dict[str, KeyCounts] = {}
        self.first_byte = Histogram()
        self.first_token = Histogram()
        self.duration = Histogram()
        self.inter_token = Histogram(SHORT_BUCKETS)
        self.overhead = Histogram(SHORT_BUCKETS)
        self.routing = Histogram(SHORT_BUCKETS)
        self.queue_wait = Histogram()

    def add(self, facts: RequestFacts, *, ended: bool, answered: bool) -> None:
        """Count a request that ``ended`` at this model of this backend, or of which that ``answered`` the beginning."""
        arrived = facts.arrived
        if ended:
            routed, granted = facts.routed, facts.first_granted
            self.duration.observe(facts.ended - arrived)
            self.routing.observe(routed - arrived)
            if facts.first_sent:
                self.overhead.observe(facts.first_sent - arrived - (granted - routed if granted else 0.0))
            if facts.queued:
                self.queue_wait.observe(facts.queue_wait)
        if answered:
            first_byte, events = facts.first_byte, facts.events
            self.first_byte.observe(first_byte - facts.answered_sent)
            if events:
                self.first_token.observe(first_byte - arrived)
                if events > 1:
                    self.inter_token.observe((facts.ended - first_byte) / (events - 1))


def label_texts(metric: MetricInfo, labels: Sequence[str]) -> list[str]:
    """The values of a metric's labels, as they may stand on a page. Raises ``ValueError`` for too few or too many."""
    if len(labels) != len(metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, got values for {len(labels)}")
    return [shortened(each.encode(errors="replace").decode()) for each in labels]


class Counters:
    """Everything counted since the gateway started.

    ``by_metric``: the counters and histograms of what is rare, whose metrics tell what they count: those of observers,
    too, who get this as their ``Figures``. Their keys are the values of the metric's labels, or the value of its only
    one.
    ``max_series``: the most pairs of backend and model with series, the most counts of keys that share a pair with
    others, and the most series of a metric that is not the gateway's own; all others are counted as ``other``.
    """

    def __init__(self, max_series: int = _MAX_SERIES) -> None:
        self.max_series = max_series
        self._series: dict[tuple[str, str], Series] = {}
        self._keyed = 0
        """The number of ``KeyCounts`` of all series."""
        self.by_metric: dict[MetricInfo, Any] = {}
        self.refused: defaultdict[tuple[str, str], int] = self._declare(metrics.REFUSED)
        self.unrouted = 0
        """Requests that ended without an attempt."""
        self.unrouted_failed = 0
        """Those of them that ended with a status of 500 or more."""
        self.swaps: defaultdict[tuple[str, str], Histogram] = NewestSeries(Histogram, max_series)
        """The durations of swaps, by target and outcome: ``ready`` or ``failed``."""
        self.last_swaps: deque[SwapRecord] = deque(maxlen=_LAST_SWAPS)
        self.evictions: defaultdict[str, int] = self._declare(metrics.EVICTIONS, max_series)
        self.retries: defaultdict[str, int] = self._declare(metrics.RETRIES, max_series)
        self.retries_refused: defaultdict[str, int] = self._declare(metrics.RETRIES_REFUSED)
        self.hedges: defaultdict[tuple[str, str], int] = self._declare(metrics.HEDGES, max_series)
        self.stale: defaultdict[str, int] = self._declare(metrics.STALE, max_series)
        self.continuations: defaultdict[tuple[str, str, str], int] = self._declare(metrics.CONTINUATIONS, max_series)
        self.gaps: defaultdict[str, Histogram] = self._declare(metrics.CONTINUATION_GAP)
        """The times for which clients waited for the next event of a continued stream, by the reason."""
        self.intercepted: defaultdict[tuple[str, str], int] = self._declare(metrics.INTERCEPTED)
        self.notes_shown = False
        """Whether observers now say what they want to see under a configuration."""
        self._shown: set[tuple[MetricInfo, Any]] = set()
        """The series that observers have then shown at 0."""
        self._own = frozenset(self.by_metric)
        """Those whose labels the gateway chooses, and bounds itself."""

    def _declare(self, metric: MetricInfo, most: int = 0) -> defaultdict[Any, Any]:
        """Have ``metric``; with ``most``, of names that come and go, only so many of the newest series."""
        make: Any = int if metric.kind == "counter" else Histogram
        series = NewestSeries(make, most) if most else defaultdict(make)
        found: defaultdict[Any, Any] = self.by_metric.setdefault(metric, series)
        return found

    def have(self, metric: MetricInfo, counted: Counter[Any]) -> None:
        """Have what another part counts, by the values of the metric's labels, or by that of its only one."""
        self.by_metric[metric] = counted

    def lend(self, observer: Observer) -> None:
        """Have the metrics of an observer, and let it count in them.

        Raises ``ValueError`` for a gauge, and for a name that another metric has.
        """
        for metric in observer.metrics:
            if metric.kind == "gauge":
                raise ValueError(f"{metric.name} is a gauge: only counters and histograms add up")
            if any(each.name == metric.name for each in self.by_metric if each != metric):
                raise ValueError(f"another metric has the name {metric.name}")
            self._declare(metric)
        observer.use_figures(self)

    def count(self, metric: MetricInfo, labels: Sequence[str] = (), number: int = 1) -> None:
        """Add ``number`` to a series of a counter."""
        key = self._key(metric, labels)
        if self.notes_shown:
            self._shown.add((metric, key))
        self.by_metric[metric][key] += int(number)

    def forget_shown(self) -> None:
        """Drop the series that observers have shown under another configuration, and that are still 0."""
        for metric, key in self._shown:
            if not self.by_metric[metric].get(key):
                self.by_metric[metric].pop(key, None)
        self._shown.clear()

    def observe(self, metric: MetricInfo, labels: Sequence[str], seconds: float) -> None:
        """Add a time to a series of a histogram."""
        self.histogram(metric, labels).observe(seconds)

    def histogram(self, metric: MetricInfo, labels: Sequence[str]) -> Histogram:
        """A series of a histogram."""
        found: Histogram = self.by_metric[metric][self._key(metric, labels)]
        return found

    def _key(self, metric: MetricInfo, labels: Sequence[str]) -> Any:
        """The key of the series with these values of its labels, or of that of all others if there are too many."""
        known, key = self.by_metric[metric], _key_of(labels)
        if key in known or metric in self._own:
            return key
        key = _key_of(label_texts(metric, labels))
        return key if key in known or len(known) < self.max_series else _key_of([OTHER] * len(labels))

    def labelled(self, metric: MetricInfo) -> list[tuple[tuple[str, ...], Any]]:
        """A counter or a histogram of ``by_metric``, each series with the values of all labels."""
        return [(key if isinstance(key, tuple) else (key,), series) for key, series in self.by_metric[metric].items()]

    def measured(self, metric: MetricInfo) -> list[tuple[tuple[str, ...], int, float]]:
        """Every series of ``labelled``, with its number and the sum of its times."""
        rows = self.labelled(metric)
        if metric.kind == "counter":
            return [(labels, number, 0.0) for labels, number in rows]
        return [(labels, sum(each.counts), each.total) for labels, each in rows]

    def forget_series(self) -> None:
        """Begin the series of models and backends again."""
        self._series = {}
        self._keyed = 0

    def end_unrouted(self, status: int) -> None:
        """Count a request that ended with this status without an attempt."""
        self.unrouted += 1
        self.unrouted_failed += status >= 500

    def refuse(self, code: str, model: str) -> None:
        """Count a request for ``model``, empty if that is unknown, which got an error of the gateway."""
        if (code, model) not in self.refused and len(self.refused) >= self.max_series:
            model = OTHER
        self.refused[code, shortened(model)] += 1

    def continued(self, backend: str, reason: str, outcome: str, gap: float) -> None:
        """Count a stream that ``backend`` continues after ``gap`` seconds."""
        self.continuations[backend, reason, outcome] += 1
        self.gaps[reason].observe(gap)

    def add(self, facts: RequestFacts) -> None:
        """Count a request that had attempts. A continued stream began at its first one."""
        caller, answered = facts.caller or "", facts.answered
        series = self._series.get((facts.backend or "", facts.model or ""))
        if series is None:
            series = self.series(facts.backend or "", facts.model or "")
        begun = answered is not None and facts.answered_sent > 0 and facts.first_byte > 0
        here = begun and answered is facts.attempts[-1]
        series.add(facts, ended=True, answered=here)
        counts = series.keys.get(caller)
        if counts is None:
            counts = self.key_counts(series, caller)
        counts.add(facts)
        if facts.trace_id is not None:
            series.duration.note(facts.ended - facts.arrived, facts.trace_id)
        if begun and answered is not None:
            if not here:
                series = self.series(answered.backend, answered.model)
                series.add(facts, ended=False, answered=True)
            if facts.trace_id is not None and facts.events:
                series.first_token.note(facts.first_byte - facts.arrived, facts.trace_id)

    def series(self, backend: str, model: str) -> Series:
        """The series of ``model`` on ``backend``; a new one if there is none yet, and room for it."""
        found = self._series.get((backend, model))
        if found is None:
            key = (backend, shortened(model))
            if key not in self._series and len(self._series) >= self.max_series:
                key = (OTHER, OTHER)
            found = self._series.setdefault(key, Series())
        return found

    def key_counts(self, series: Series, key: str) -> KeyCounts:
        """The counts of ``key``, new ones if there is room for them; else those of all keys without room."""
        # the first key of a series takes no room: without keys, all requests have the same empty name
        if series.keys and key not in series.keys and self._keyed >= self.max_series:
            key = OTHER
        if key not in series.keys:
            series.keys[key] = KeyCounts()
            self._keyed += 1
        return series.keys[key]

    def __iter__(self) -> Iterator[tuple[str, str, Series]]:
        """Yield ``(backend, model, series)``."""
        return ((backend, model, series) for (backend, model), series in self._series.items())


def _key_of(labels: Sequence[str]) -> Any:
    return labels[0] if len(labels) == 1 else tuple(labels)
