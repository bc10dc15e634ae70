"""Backends, replicas and queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import Metric

from enginehouse.api.metrics import births
from enginehouse.api.metrics.families import Numbers, from_zero, histograms, numbers
from enginehouse.domain.replica import Health, ReplicaState
from enginehouse.engines.managed_engines import ManagedEngines
from enginehouse.relay.relay import Relay
from enginehouse.telemetry import metric_list as metrics
from enginehouse.telemetry.counters import OTHER, Histogram


def fleet_metrics(relay: Relay, engines: ManagedEngines) -> Iterator[Metric]:
    """The families of backends, replicas, queues and swaps."""
    context = relay.context
    backends = context.fleet.backends()
    yield numbers(metrics.PENDING, (([each.name], each.pending) for each in backends))
    yield numbers(metrics.HEALTHY, (([each.name], each.health is Health.HEALTHY) for each in backends))
    yield numbers(metrics.LATENCY, (([each.name], each.avg_latency_ms / 1000) for each in backends))
    yield numbers(metrics.ERROR_SHARE, (([each.name], each.error_share) for each in backends))
    yield numbers(metrics.GPU_MEMORY, _gpus(engines))
    used = (([each.host, str(each.gpu)], each.utilization) for each in engines.gpus())
    yield numbers(metrics.GPU_UTILIZATION, ((labels, share) for labels, share in used if share is not None))
    yield numbers(metrics.REPLICA_STATE, _states(relay))
    yield numbers(metrics.QUEUE_DEPTH, _depths(relay, engines))
    begun = {(name, outcome): Histogram() for name in births.launched(context) for outcome in ("ready", "failed")}
    yield histograms(metrics.SWAPS, {**begun, **context.counters.swaps}.items())


def waiting_by_replica(relay: Relay, engines: ManagedEngines) -> Counter[str]:
    """How many requests wait for each replica. The tickets of a backend with a limit name no replica."""
    waiting = engines.waiting()
    if not waiting:
        return Counter()
    routes = {live.ticket: live.route.chosen.replica for live in relay.live if live.ticket and live.route}
    return Counter(routes.get(ticket, ticket.replica) for ticket in waiting)


def _gpus(engines: ManagedEngines) -> Numbers:
    for each in engines.gpus():
        yield [each.host, str(each.gpu), "used"], each.used
        yield [each.host, str(each.gpu), "free"], each.free


def _depths(relay: Relay, engines: ManagedEngines) -> Numbers:
    """The waiting requests of each replica that has a queue, and of each model that requests wait for."""
    context, depths = relay.context, waiting_by_replica(relay, engines)
    depths.update(context.waiting_room.models)
    queued = ((each.replica,) for each in births.replicas(context) if each.backend in context.queues)
    return from_zero(queued, (((replica,), count) for replica, count in depths.items()))


def _states(relay: Relay) -> Numbers:
    """Whether a replica is in a state. Above ``max_series`` replicas, the states are summed up."""
    context = relay.context
    replicas = [each for candidates in context.fleet.snapshot.models.values() for each in candidates]
    most = context.counters.max_series
    for each in replicas[:most]:
        yield from (([each.replica, state.value], int(each.state is state)) for state in ReplicaState)
    rest = Counter(each.state.value for each in replicas[most:])
    yield from (([OTHER, state], count) for state, count in rest.items())
