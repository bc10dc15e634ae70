"""The metrics of ``/metrics`` and of OTLP, beside those that the core counts itself.

The page of the reference is made from them, too.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from enginehouse.services import MetricInfo
from enginehouse.telemetry import metric_list

_counter = partial(MetricInfo, "counter")
_gauge = partial(MetricInfo, "gauge")
_histogram = partial(MetricInfo, "histogram")
_SERVED = ("backend", "model")

REQUESTS = _counter(
    "enginehouse_requests",
    "Finished requests that had a route, by their final status (499: the client left, or an operator cancelled it) and "
    "the reason of the route. `key`: the name of the caller's key, here and below, empty without keys, and `other` for "
    "more keys than `telemetry.max_series` allows.",
    (*_SERVED, "status", "reason", "key"),
)
LIVE = _gauge("enginehouse_live_requests", "Requests in progress.")
BODY_BYTES = _gauge(
    "enginehouse_request_body_bytes",
    "Bytes of request bodies that have arrived and are still needed (`server.max_body_memory`).",
)
ENGINE_BYTES = _gauge(
    "enginehouse_engine_answer_bytes", "Bytes of engines' answers in memory (`server.max_engine_memory`)."
)
DURATION = _histogram("enginehouse_request_duration_seconds", "From a whole request to the end of its answer.", _SERVED)
FIRST_BYTE = _histogram(
    "enginehouse_time_to_first_byte_seconds",
    "From sending a request to its engine until the answer began.",
    _SERVED,
)
FIRST_TOKEN = _histogram(
    "enginehouse_time_to_first_token_seconds",
    "From a whole request until the first event of its stream, the wait for the engine included.",
    _SERVED,
)
INTER_TOKEN = _histogram(
    "enginehouse_inter_token_seconds",
    "The mean time between the events of a stream; one observation for each stream.",
    _SERVED,
)
OVERHEAD = _histogram(
    "enginehouse_overhead_seconds",
    "From a whole request until an engine had it, without the wait in a queue.",
    _SERVED,
)
ROUTING = _histogram("enginehouse_routing_seconds", "Reading a request and choosing its replica.", _SERVED)
QUEUE_WAIT = _histogram("enginehouse_queue_wait_seconds", "The wait of a request in the queue of its backend.", _SERVED)
INPUT_TOKENS = _counter(
    "enginehouse_input_tokens", "Tokens of prompts, as the engines counted them.", (*_SERVED, "key")
)
CACHED_TOKENS = _counter(
    "enginehouse_cached_tokens",
    "Tokens of prompts that engines had in their caches, as far as they say so: a part of the input tokens.",
    (*_SERVED, "key"),
)
OUTPUT_TOKENS = _counter(
    "enginehouse_output_tokens",
    "Tokens of answers: as the engine counted them (source `usage`), else the events of streams (`chunks`).",
    (*_SERVED, "source", "key"),
)
QUEUE_DEPTH = _gauge(
    "enginehouse_queue_depth", "Requests that wait for a replica, or, by its name, for a model.", ("replica",)
)
SWAPS = _histogram(
    "enginehouse_swap_duration_seconds",
    "From the decision of a swap to its end, by the replica that it loads; `ready`, `failed`, or `cancelled` because "
    "its model was unloaded or no longer wanted.",
    ("target", "outcome"),
)
REPLICA_STATE = _gauge(
    "enginehouse_replica_state", "1 for the current state of each replica, 0 for all others.", ("replica", "state")
)
GPU_MEMORY = _gauge(
    "enginehouse_gpu_memory_bytes",
    "Memory of each GPU of this machine, `used` and `free`, as NVIDIA's library reports it.",
    ("host", "gpu", "kind"),
)
GPU_UTILIZATION = _gauge(
    "enginehouse_gpu_utilization", "Share of the last moments in which a GPU worked, from 0 to 1.", ("host", "gpu")
)
PENDING = _gauge("enginehouse_backend_pending", "Requests at a backend.", ("backend",))
HEALTHY = _gauge("enginehouse_backend_healthy", "1 if a backend is healthy.", ("backend",))
LATENCY = _gauge("enginehouse_backend_latency_seconds", "Average time until an answer begins.", ("backend",))
ERROR_SHARE = _gauge(
    "enginehouse_backend_error_share", "Share of bad answers in the last two minutes, from 0 to 1.", ("backend",)
)
PLUGIN_TIME = _histogram(
    "enginehouse_plugin_seconds",
    "Sampled durations of calls, at most one a second of each method: of an extractor, a filter, a scorer of "
    "another distribution, the strategy with its scorers, `eviction_for` of a swapper, `on_tick` of a scheduler, or an "
    "observer. The log names a plugin with two samples in a row above 5 ms.",
    ("kind", "type", "name"),
)
WORKERS_REPLACED = _counter(
    "enginehouse_workers_replaced",
    "Workers that `died`, or whose event loop `hung` for longer than `server.worker_timeout`. Only with workers.",
    ("reason",),
)
WORKER_BUSY = _gauge(
    "enginehouse_worker_loop_busy",
    "Share of the last second for which the event loop of a worker worked. Only with `telemetry.per_worker`.",
    ("worker",),
)
BUILD = _gauge("enginehouse_build_info", "1, with the versions that run.", ("version", "python"))

HISTOGRAMS: Final = {
    "duration": DURATION,
    "first_byte": FIRST_BYTE,
    "first_token": FIRST_TOKEN,
    "inter_token": INTER_TOKEN,
    "overhead": OVERHEAD,
    "routing": ROUTING,
    "queue_wait": QUEUE_WAIT,
}
"""Those that the core counts for each model of each backend, in the order of the page, by its names for them."""
ALL = (*(value for value in globals().values() if isinstance(value, MetricInfo)), *metric_list.ALL)
"""Every metric but those of callers, of observers, of services and of the process."""
