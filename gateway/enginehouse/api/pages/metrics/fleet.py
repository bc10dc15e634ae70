"""Backends, replicas and queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from enginehouse.api.pages.metrics.families import Numbers, histograms, numbers
from enginehouse.domain.replica import Health
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.relay import Relay
from enginehouse.telemetry import metric_list as metrics
from enginehouse.telemetry.counters import OTHER


def fleet_metrics(relay: Relay, engines: ManagedEngines) -> Iterator[Metric]:
    """The families of backends, replicas, queues and swaps."""
    context = relay.context
    backends = context.fleet.backends()
    yield numbers(metrics.PENDING, (([each.name], each.pending) for each in backends))
    yield numbers(metrics.HEALTHY, (([each.name], each.health is Health.HEALTHY) for each in backends))
    yield numbers(metrics.LATENCY, (([each.name], each.avg_latency_ms / 1000) for each in backends))
    yield numbers(metrics.GPU_MEMORY, _gpus(engines))
    yield numbers(metrics.REPLICA_STATE, _states(relay))
    depth = Counter(ticket.replica for ticket in engines.waiting())
    yield numbers(metrics.QUEUE_DEPTH, (([replica], count) for replica, count in depth.items()))
    counters = context.counters
    yield histograms(metrics.SWAPS, counters.swaps.items())
    yield numbers(metrics.EVICTIONS, (([replica], count) for replica, count in counters.evictions.items()))


def _gpus(engines: ManagedEngines) -> Numbers:
    for each in engines.gpus():
        yield [each.host, str(each.gpu), "used"], each.used
        yield [each.host, str(each.gpu), "free"], each.free


def _states(relay: Relay) -> Numbers:
    """The states of the replicas. Above ``max_series`` replicas, the states are summed up."""
    context = relay.context
    replicas = [each for candidates in context.fleet.snapshot.models.values() for each in candidates]
    most = context.counters.max_series
    yield from (([each.replica, each.state.value], 1) for each in replicas[:most])
    rest = Counter(each.state.value for each in replicas[most:])
    yield from (([OTHER, state], count) for state, count in rest.items())
