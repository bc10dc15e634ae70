"""The counters of finished requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric

from enginehouse.api.doors.body_memory import BodyMemory
from enginehouse.api.pages.metrics.families import Histograms, Numbers, histograms, numbers
from enginehouse.relay.relay import Relay
from enginehouse.telemetry import metric_list as metrics
from enginehouse.telemetry.counters import Counters, Histogram, Series


def request_metrics(relay: Relay, body_memory: BodyMemory) -> Iterator[Metric]:
    """The families of requests, by backend and model."""
    counters = relay.context.counters
    yield numbers(metrics.REQUESTS, _statuses(counters))
    yield numbers(metrics.REFUSED, (([code], count) for code, count in counters.refused.items()))
    yield numbers(metrics.LIVE, [([], len(relay.live))])
    yield numbers(metrics.BODY_BYTES, [([], body_memory.held)])
    yield histograms(metrics.DURATION, _each(counters, lambda series: series.duration))
    yield histograms(metrics.FIRST_BYTE, _each(counters, lambda series: series.first_byte))
    yield histograms(metrics.FIRST_TOKEN, _each(counters, lambda series: series.first_token))
    yield histograms(metrics.INTER_TOKEN, _each(counters, lambda series: series.inter_token))
    yield histograms(metrics.OVERHEAD, _each(counters, lambda series: series.overhead))
    yield histograms(metrics.ROUTING, _each(counters, lambda series: series.routing))
    yield histograms(metrics.QUEUE_WAIT, _each(counters, lambda series: series.queue_wait))
    yield numbers(
        metrics.INPUT_TOKENS, (([backend, model], series.input_tokens) for backend, model, series in counters)
    )
    yield numbers(metrics.OUTPUT_TOKENS, _output_tokens(counters))
    yield numbers(metrics.RETRIES, (([backend], count) for backend, count in counters.retries.items()))
    yield numbers(metrics.RETRIES_REFUSED, (([kind], count) for kind, count in counters.retries_refused.items()))
    yield numbers(metrics.HEDGES, counters.hedges.items())
    yield numbers(metrics.STALE, (([backend], count) for backend, count in counters.stale.items()))
    yield numbers(metrics.CONTINUATIONS, counters.continuations.items())
    yield histograms(metrics.CONTINUATION_GAP, (([reason], gaps) for reason, gaps in counters.gaps.items()))
    yield numbers(metrics.MIGRATIONS, counters.migrations.items())
    yield numbers(metrics.FAILED_MIGRATIONS, counters.failed_migrations.items())
    yield numbers(metrics.RECORDS_DROPPED, [([], relay.endings.delivery.dropped)])
    drops = relay.context.router.filter_drops
    yield numbers(metrics.FILTER_DROPS, (([name], count) for name, count in drops.items()))


def _statuses(counters: Counters) -> Numbers:
    for backend, model, series in counters:
        for (status, reason), count in series.requests.items():
            yield [backend, model, str(status), reason], count


def _output_tokens(counters: Counters) -> Numbers:
    for backend, model, series in counters:
        for source, count in series.output_tokens.items():
            yield [backend, model, source], count


def _each(counters: Counters, histogram: Callable[[Series], Histogram]) -> Histograms:
    return (([backend, model], histogram(series)) for backend, model, series in counters)
