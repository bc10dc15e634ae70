"""All metrics: the page of Prometheus, OTLP and the reference page of the docs are made from this list."""

from __future__ import annotations

from typing import Literal, NamedTuple


class MetricInfo(NamedTuple):
    """A metric. Prometheus shows a counter with ``_total``; times are in seconds."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    text: str
    labels: tuple[str, ...] = ()


_SERVED = ("backend", "model")
_SELECTION = ("rescheduling_req_select_rule", "rescheduling_req_select_order")

REQUESTS = MetricInfo(
    "enginehouse_requests",
    "counter",
    "Finished requests that had a route, by their final status (499: the client left, or an operator cancelled it) and "
    "the reason of the route.",
    (*_SERVED, "status", "reason"),
)
REFUSED = MetricInfo("enginehouse_refused", "counter", "Requests answered with an error of the gateway.", ("code",))
LIVE = MetricInfo("enginehouse_live_requests", "gauge", "Requests that have no whole answer yet.")
BODY_BYTES = MetricInfo(
    "enginehouse_request_body_bytes",
    "gauge",
    "Bytes of request bodies that have arrived and are still needed (`server.max_body_memory`).",
)
DURATION = MetricInfo(
    "enginehouse_request_duration_seconds", "histogram", "From a whole request to the end of its answer.", _SERVED
)
FIRST_BYTE = MetricInfo(
    "enginehouse_time_to_first_byte_seconds",
    "histogram",
    "From sending a request to its engine until the answer began.",
    _SERVED,
)
FIRST_TOKEN = MetricInfo(
    "enginehouse_time_to_first_token_seconds",
    "histogram",
    "From a whole request until the first event of its stream, the wait for the engine included.",
    _SERVED,
)
INTER_TOKEN = MetricInfo(
    "enginehouse_inter_token_seconds",
    "histogram",
    "The mean time between the events of a stream; one observation for each stream.",
    _SERVED,
)
OVERHEAD = MetricInfo(
    "enginehouse_overhead_seconds",
    "histogram",
    "From a whole request until an engine had it, without the wait in a queue.",
    _SERVED,
)
ROUTING = MetricInfo("enginehouse_routing_seconds", "histogram", "Reading a request and choosing its replica.", _SERVED)
QUEUE_WAIT = MetricInfo(
    "enginehouse_queue_wait_seconds", "histogram", "The wait of a request in the queue of its backend.", _SERVED
)
INPUT_TOKENS = MetricInfo(
    "enginehouse_input_tokens", "counter", "Tokens of prompts, as the engines counted them.", _SERVED
)
OUTPUT_TOKENS = MetricInfo(
    "enginehouse_output_tokens",
    "counter",
    "Tokens of answers: as the engine counted them (source `usage`), else the events of streams (`chunks`).",
    (*_SERVED, "source"),
)
RETRIES = MetricInfo(
    "enginehouse_retries", "counter", "Requests sent once more because this backend failed them.", ("backend",)
)
RETRIES_REFUSED = MetricInfo(
    "enginehouse_retries_refused",
    "counter",
    "Requests that were not sent once more because `routing.retry_budget` was spent: as a `retry`, a `continuation` or "
    "a `hedge`.",
    ("kind",),
)
HEDGES = MetricInfo(
    "enginehouse_hedges",
    "counter",
    "Slow streams that this backend was asked for too (`routing.hedge_after`): it `won`, it `lost`, or it `failed`.",
    ("backend", "outcome"),
)
STALE = MetricInfo(
    "enginehouse_stale_connections",
    "counter",
    "Requests sent anew because this backend closed a kept connection.",
    ("backend",),
)
CONTINUATIONS = MetricInfo(
    "enginehouse_continuations",
    "counter",
    "Streams that went on at this backend: after the `tokens`, after the `text`, or by a `restart`.",
    ("backend", "reason", "outcome"),
)
CONTINUATION_GAP = MetricInfo(
    "enginehouse_continuation_gap_seconds", "histogram", "From the cut until such a stream went on.", ("reason",)
)
MIGRATIONS = MetricInfo(
    "enginehouse_rescheduling",
    "counter",
    "Migrations that rescheduling began, by what they selected; the labels are Llumnix's.",
    _SELECTION,
)
FAILED_MIGRATIONS = MetricInfo(
    "enginehouse_rescheduling_failed", "counter", "Those of them that failed or moved nothing.", _SELECTION
)
FILTER_DROPS = MetricInfo(
    "enginehouse_filter_drops", "counter", "Candidates that a filter dropped from decisions.", ("filter",)
)
QUEUE_DEPTH = MetricInfo("enginehouse_queue_depth", "gauge", "Requests that wait for a replica.", ("replica",))
SWAPS = MetricInfo(
    "enginehouse_swap_duration_seconds",
    "histogram",
    "From the decision of a swap to its end, by the replica that it loads; `ready` or `failed`.",
    ("target", "outcome"),
)
EVICTIONS = MetricInfo("enginehouse_evictions", "counter", "Replicas stopped to make room for another.", ("replica",))
REPLICA_STATE = MetricInfo(
    "enginehouse_replica_state", "gauge", "1 for the current state of each replica.", ("replica", "state")
)
PENDING = MetricInfo("enginehouse_backend_pending", "gauge", "Requests at a backend.", ("backend",))
HEALTHY = MetricInfo("enginehouse_backend_healthy", "gauge", "1 if a backend is healthy.", ("backend",))
LATENCY = MetricInfo(
    "enginehouse_backend_latency_seconds", "gauge", "Average time until an answer begins.", ("backend",)
)
LOOP_LAG = MetricInfo(
    "enginehouse_event_loop_lag_seconds",
    "histogram",
    "How late the event loop turns; anything that holds it delays all requests.",
)
SLOW_CALLS = MetricInfo(
    "enginehouse_slow_plugin_calls",
    "counter",
    "Calls of plugins that held the event loop for more than 100 ms.",
    ("plugin",),
)
PLUGIN_TIME = MetricInfo(
    "enginehouse_plugin_seconds",
    "histogram",
    "Samples, at most 20 a second for each plugin, of how long a call takes: of an extractor, a filter, a scorer of "
    "another distribution, the strategy with its scorers, `eviction_for` of a swapper, `on_tick` of a scheduler, or an "
    "observer. A plugin with two samples in a row above 5 ms is named in the log.",
    ("kind", "type", "name"),
)
SPANS = MetricInfo(
    "enginehouse_spans", "counter", "Spans that the collector took (`sent`) or did not take (`failed`).", ("outcome",)
)
TRACES_DROPPED = MetricInfo(
    "enginehouse_traces_dropped",
    "counter",
    "Traced requests that never reached the collector: the pipe to the exporter was `full`, or the exporter `died`.",
    ("why",),
)
EXPORTER_RESTARTS = MetricInfo("enginehouse_exporter_restarts", "counter", "How often the exporter was started again.")
BUILD = MetricInfo("enginehouse_build_info", "gauge", "1, with the versions that run.", ("version", "python"))

ALL = tuple(value for value in globals().values() if isinstance(value, MetricInfo))
"""Every metric but those of the process, in the order of the page."""
