"""The counters of finished requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from enginehouse.api.admission import BodyMemory
from enginehouse.api.metrics import births
from enginehouse.api.metrics.families import Numbers, from_zero, histograms, numbers
from enginehouse.relay.relay import Relay
from enginehouse.telemetry import metric_list as metrics
from enginehouse.telemetry.counters import HISTOGRAMS, Counters, KeyCounts


def request_metrics(relay: Relay, body_memory: BodyMemory) -> Iterator[Metric]:
    """The families of requests, by backend and model."""
    context, counters = relay.context, relay.context.counters
    yield numbers(metrics.REQUESTS, from_zero(births.requests(context), _statuses(counters)))
    yield numbers(metrics.LIVE, [([], len(relay.live))])
    yield numbers(metrics.BODY_BYTES, [([], body_memory.held)])
    yield numbers(metrics.ENGINE_BYTES, [([], relay.context.engine_memory.held)])
    yield numbers(metrics.DROPPED, (([kind], count) for kind, count in relay.context.engine_memory.dropped.items()))
    for name, metric in HISTOGRAMS:
        yield histograms(metric, (([backend, model], getattr(each, name)) for backend, model, each in counters))
    yield numbers(metrics.INPUT_TOKENS, _of_keys(counters, lambda counts: counts.input_tokens))
    yield numbers(metrics.CACHED_TOKENS, _of_keys(counters, lambda counts: counts.cached_tokens))
    yield numbers(metrics.OUTPUT_TOKENS, _output_tokens(counters))
    known = {**births.of_counters(context), metrics.MIRRORED: relay.mirrors.labels()}
    for metric in counters.by_metric:
        yield numbers(metric, from_zero(known.get(metric, ()), counters.labelled(metric)))
    for metric in counters.times:
        yield histograms(metric, counters.labelled_times(metric))
    yield numbers(metrics.RECORDS_DROPPED, [([], relay.requests.delivery.dropped)])
    drops = relay.context.router.filter_drops
    yield numbers(metrics.FILTER_DROPS, (([name], count) for name, count in drops.items()))


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
