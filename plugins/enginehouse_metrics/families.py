"""The gateway's metrics, as Prometheus's library has them: of requests, of backends and queues, of the process."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily, Metric

import enginehouse_metrics.metric_list as metrics
from enginehouse import Candidate, Health, ReplicaState
from enginehouse.domain.errors import all_codes
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.http.page_facts import MeasuredGateway
from enginehouse.pages import PageFacts
from enginehouse.relay.context import RelayContext
from enginehouse.relay.relay import Relay
from enginehouse.routing_facts import Reason
from enginehouse.services import MetricInfo
from enginehouse.telemetry import metric_list as counted
from enginehouse.telemetry.counters import OTHER, Counters, Histogram, KeyCounts

Labels = tuple[str, ...]

_REFUSED_RETRIES = (("retry",), ("continuation",), ("hedge",))
_HEDGES = (("won",), ("lost",), ("failed",))
_CONTINUATIONS = (
    *(("broken", "tokens"), ("broken", "text"), ("broken", "restart")),
    *(("moved", "tokens"), ("moved", "text")),
)
_STATUSES = ("200", "500", "502", "503", "504")
_OF_MODELS = (
    "capability_mismatch",
    "fallback_exhausted",
    "load_failed",
    "no_healthy_backend",
    "overloaded",
    "queue_full",
    "queue_timeout",
    "upstream_error",
    "upstream_timeout",
)
"""The codes of errors that a model, or its engines, may be the cause of."""
Numbers = Iterable[tuple[Sequence[str], float]]
"""The values of the labels, and the value of their series."""
_Bucket = tuple[str, float] | tuple[str, float, Exemplar]
Histograms = Iterable[tuple[Sequence[str], Histogram]]
_version = cache(version)  # it reads files


def numbers(metric: MetricInfo, series: Numbers) -> Metric:
    """The family of a counter or a gauge."""
    make = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = make(metric.name, metric.text, labels=metric.labels)
    for labels, value in series:
        family.add_metric(labels, value)
    return family


def histograms(metric: MetricInfo, series: Histograms) -> Metric:
    """The family of a histogram."""
    family = HistogramMetricFamily(metric.name, metric.text, labels=metric.labels)
    for labels, histogram in series:
        bounds = (*map(str, histogram.bounds), "+Inf")
        buckets: list[_Bucket] = list(zip(bounds, accumulate(histogram.counts), strict=True))
        for place, (trace_id, seconds) in list(histogram.exemplars.items()):
            buckets[place] = (*buckets[place][:2], Exemplar({"trace_id": trace_id}, seconds))
        family.add_metric(labels, buckets, histogram.total)
    return family


def _from_zero(known: Iterable[tuple[str, ...]], counted: Iterable[tuple[tuple[str, ...], float]]) -> Numbers:
    """``counted``, and 0 for the ``known`` labels that are not: a rate wants a first value."""
    return {**dict.fromkeys(known, 0), **dict(counted)}.items()


def families(facts: PageFacts) -> Iterator[Metric]:
    """All but those that the operating system counts. Anything may change between two of them."""
    gateway = facts.gateway
    yield from _of_requests(gateway.relay)
    yield numbers(metrics.BODY_BYTES, [([], gateway.measured.body_memory.held)])
    yield from _of_fleet(gateway.relay, gateway.engines)
    for measured in [*gateway.measured.by_others()]:
        for metric, series in measured.items():
            yield numbers(metric, series)
    yield from _of_process(gateway.measured)


def _of_requests(relay: Relay) -> Iterator[Metric]:
    context, counters = relay.context, relay.context.counters
    yield numbers(metrics.REQUESTS, _from_zero(_born_requests(context), _statuses(counters)))
    yield numbers(metrics.LIVE, [([], len(relay.live))])
    yield numbers(metrics.ENGINE_BYTES, [([], relay.context.engine_memory.held)])
    for name, metric in metrics.HISTOGRAMS.items():
        yield histograms(metric, (([backend, model], getattr(each, name)) for backend, model, each in counters))
    yield numbers(metrics.INPUT_TOKENS, _of_keys(counters, lambda counts: counts.input_tokens))
    yield numbers(metrics.CACHED_TOKENS, _of_keys(counters, lambda counts: counts.cached_tokens))
    yield numbers(metrics.OUTPUT_TOKENS, _output_tokens(counters))
    known = _born_counters(context)
    for metric in [*counters.by_metric]:
        series = counters.labelled(metric)
        if metric.kind == "counter":
            yield numbers(metric, _from_zero(known.get(metric, ()), series))
        else:
            yield histograms(metric, series)


def _statuses(counters: Counters) -> Iterator[tuple[tuple[str, ...], int]]:
    for backend, model, series in counters:
        for key, counts in series.keys.items():
            for (status, reason), count in counts.requests.items():
                yield (backend, model, str(status), reason, key), count


def _of_keys(counters: Counters, count: Callable[[KeyCounts], int]) -> Numbers:
    return (
        ([backend, model, key], count(counts))
        for backend, model, series in counters
        for key, counts in series.keys.items()
    )


def _output_tokens(counters: Counters) -> Numbers:
    for backend, model, series in counters:
        for key, counts in series.keys.items():
            yield [backend, model, "usage", key], counts.from_usage
            yield [backend, model, "chunks", key], counts.from_chunks


def _of_fleet(relay: Relay, engines: ManagedEngines) -> Iterator[Metric]:
    context = relay.context
    backends = context.fleet.backends()
    yield numbers(metrics.PENDING, (([each.name], each.pending) for each in backends))
    yield numbers(metrics.HEALTHY, (([each.name], each.health is Health.HEALTHY) for each in backends))
    yield numbers(metrics.LATENCY, (([each.name], each.avg_latency_ms / 1000) for each in backends))
    yield numbers(metrics.ERROR_SHARE, (([each.name], each.error_share) for each in backends))
    yield numbers(metrics.GPU_MEMORY, _gpus(engines))
    used = (([host, str(gpu.index)], gpu.utilization) for host, gpu, _ in engines.gpus())
    yield numbers(metrics.GPU_UTILIZATION, ((labels, share) for labels, share in used if share is not None))
    yield numbers(metrics.REPLICA_STATE, _states(relay))
    yield numbers(metrics.QUEUE_DEPTH, _depths(relay, engines))
    begun = {(name, outcome): Histogram() for name in _launched(context) for outcome in ("ready", "failed")}
    yield histograms(metrics.SWAPS, {**begun, **context.counters.swaps}.items())


def _gpus(engines: ManagedEngines) -> Numbers:
    for host, gpu, _ in engines.gpus():
        yield [host, str(gpu.index), "used"], gpu.used
        yield [host, str(gpu.index), "free"], gpu.free


def _depths(relay: Relay, engines: ManagedEngines) -> Numbers:
    """The waiting requests of each replica that has a queue, and of each model that requests wait for."""
    context, depths = relay.context, relay.waiting_by_replica(engines.waiting())
    depths.update(context.waiting_room.models)
    depths.update(live.model for live in relay.live if live.position is not None and live.model)  # in workers' rooms
    queued = ((each.replica,) for each in _replicas(context) if each.backend in context.queues)
    return _from_zero(queued, (((replica,), count) for replica, count in depths.items()))


def _states(relay: Relay) -> Numbers:
    """Whether a replica is in a state. Above ``max_series`` replicas, the states are summed up."""
    context = relay.context
    replicas = [each for candidates in context.fleet.snapshot.models.values() for each in candidates]
    most = context.counters.max_series
    for each in replicas[:most]:
        yield from (([each.replica, state.value], int(each.state is state)) for state in ReplicaState)
    rest = Counter(each.state.value for each in replicas[most:])
    yield from (([OTHER, state], count) for state, count in rest.items())


def _of_process(measured: MeasuredGateway) -> Iterator[Metric]:
    workers = measured.workers()
    yield numbers(metrics.WORKERS_REPLACED, (([why], count) for why, count in workers.replaced.items()))
    yield numbers(metrics.WORKER_BUSY, (([str(number)], busy) for number, busy in workers.busy.items()))
    times = list(measured.plugin_times.by_plugin.items())
    yield histograms(metrics.PLUGIN_TIME, (([p.kind, p.type, p.name or p.type], timed) for p, timed in times))
    yield numbers(metrics.BUILD, [([_version("enginehouse"), platform.python_version()], 1)])


def _replicas(context: RelayContext) -> list[Candidate]:
    """All replicas, as many as there may be series."""
    found = (each for candidates in context.fleet.snapshot.models.values() for each in candidates)
    return [each for each, _ in zip(found, range(context.counters.max_series), strict=False)]


def _born_requests(context: RelayContext) -> Iterator[Labels]:
    """Of each replica and key, from the start: the usual statuses, with the reasons that routes may have."""
    reasons = [Reason.MATCH, Reason.RETRY]
    reasons += [Reason.HEDGE] if context.hedging is not None else []
    found, keys = _replicas(context), context.config.auth.key_names
    for key in keys[: max(1, context.counters.max_series // max(1, len(found)))]:
        for each in found:
            for status in _STATUSES:
                for reason in reasons:
                    yield each.backend, each.model, status, reason.value, key


def _born_counters(context: RelayContext) -> Mapping[MetricInfo, Iterable[Labels]]:
    """The labels of what is rare, from the start: a rate wants a value before the first event."""
    hedges = _backends(context, *_HEDGES) if context.hedging is not None else ()
    return {
        counted.REFUSED: _refusals(context),
        counted.EVICTIONS: ((replica,) for replica in _launched(context)),
        counted.RETRIES: _backends(context),
        counted.RETRIES_REFUSED: _REFUSED_RETRIES,
        counted.HEDGES: hedges,
        counted.STALE: _backends(context),
        counted.CONTINUATIONS: _backends(context, *_CONTINUATIONS),
        counted.RECORDS_DROPPED: [()],
    }


def _launched(context: RelayContext) -> list[str]:
    """The replicas whose engines the gateway launches, or makes load models."""
    queues = {name for name, queue in context.queues.items() if queue.launches}
    return [each.replica for each in _replicas(context) if each.backend in queues]


def _refusals(context: RelayContext) -> Iterator[Labels]:
    """Every code, and for each model those that it may be the cause of."""
    yield from ((code, "") for code in all_codes())
    most = context.counters.max_series // len(_OF_MODELS)
    for model in list(context.fleet.snapshot.models)[:most]:
        yield from ((code, model) for code in _OF_MODELS)


def _backends(context: RelayContext, *values: tuple[str, ...]) -> Iterator[Labels]:
    """Each backend; with each of ``values``, if there are any."""
    for name in context.upstreams:
        yield from ((name, *each) for each in values or ((),))
