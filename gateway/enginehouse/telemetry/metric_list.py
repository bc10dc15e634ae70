"""What the gateway counts of what is rare. Bundled pages show this beside metrics of their own."""

from __future__ import annotations

from functools import partial

from enginehouse.domain.metric_info import MetricInfo as MetricInfo

_counter = partial(MetricInfo, "counter")

REFUSED = _counter("enginehouse_refused", "Requests answered with an error of the gateway.", ("code", "model"))
DROPPED = _counter(
    "enginehouse_engine_answers_dropped",
    "What was dropped because it was too large, or because `server.max_engine_memory` was spent: the answer to a "
    "`question` of the gateway, a `gathered` answer, what was kept for a `continuation`, or an `answer` that was "
    "held back.",
    ("kind",),
)
RETRIES = _counter("enginehouse_retries", "Requests sent once more because this backend failed them.", ("backend",))
RETRIES_REFUSED = _counter(
    "enginehouse_retries_refused",
    "Requests that were not sent once more because `routing.retry_budget` was spent: as a `retry`, a `continuation` or "
    "a `hedge`.",
    ("kind",),
)
HEDGES = _counter(
    "enginehouse_hedges",
    "Slow streams that were also asked of this backend (`routing.hedge_after`): it `won`, `lost` or `failed`.",
    ("backend", "outcome"),
)
STALE = _counter(
    "enginehouse_stale_connections",
    "Requests sent again because this backend closed a kept connection.",
    ("backend",),
)
CONTINUATIONS = _counter(
    "enginehouse_continuations",
    "Streams that this backend continued: after the `tokens`, after the `text`, or by a `restart`.",
    ("backend", "reason", "outcome"),
)
CONTINUATION_GAP = MetricInfo(
    "histogram", "enginehouse_continuation_gap_seconds", "From the cut until such a stream continued.", ("reason",)
)
INTERCEPTED = _counter(
    "enginehouse_intercepted",
    "Requests that an interceptor or a guard `changed`, that it `answered` or that `joined` another one.",
    ("interceptor", "outcome"),
)
FILTER_DROPS = _counter("enginehouse_filter_drops", "Candidates that a filter dropped from decisions.", ("filter",))
EVICTIONS = _counter("enginehouse_evictions", "Replicas stopped to make room for another.", ("replica",))
RECORDS_DROPPED = _counter(
    "enginehouse_records_dropped",
    "Records of ended requests that observers did not get: 10,000 others waited, because observers are slow.",
)

ALL = tuple(value for value in globals().values() if isinstance(value, MetricInfo))
"""Every metric here."""
