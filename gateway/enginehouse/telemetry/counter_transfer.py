"""Moves what a worker has counted into the counters of the process that shows them."""

from __future__ import annotations

import msgspec

from enginehouse.telemetry.counters import HISTOGRAMS, Counters, Histogram, KeyCounts, Series


class HistogramCounts(msgspec.Struct, array_like=True):
    """What a ``Histogram`` has counted."""

    counts: list[int]
    total: float
    exemplars: list[tuple[int, str, float]]


class KeyTotals(msgspec.Struct, array_like=True):
    """What ``KeyCounts`` have counted."""

    key: str
    requests: list[tuple[int, str, int]]
    input_tokens: int
    cached_tokens: int
    from_usage: int
    from_chunks: int


class SeriesTotals(msgspec.Struct, array_like=True):
    """What a ``Series`` has counted."""

    backend: str
    model: str
    histograms: list[HistogramCounts]
    keys: list[KeyTotals]


class CountedTotals(msgspec.Struct, array_like=True):
    """What ``Counters`` have counted. ``by_metric``: by the metric's name, with the values of its labels."""

    unrouted: int
    unrouted_failed: int
    series: list[SeriesTotals]
    by_metric: dict[str, list[tuple[tuple[str, ...], int | HistogramCounts]]]


def take(counters: Counters) -> CountedTotals:
    """Everything that ``counters`` have counted, which then start over. Swaps are the owner's alone."""
    totals = CountedTotals(
        counters.unrouted,
        counters.unrouted_failed,
        [_series(*each) for each in counters],
        {
            metric.name: [
                (labels, _counts(each) if isinstance(each, Histogram) else each)
                for labels, each in counters.labelled(metric)
                if each  # the owner's observers show the same series at 0
            ]
            for metric in counters.by_metric
        },
    )
    counters.forget_series()
    counters.unrouted = counters.unrouted_failed = 0
    for series in counters.by_metric.values():
        series.clear()
    return totals


def add(counters: Counters, totals: CountedTotals) -> None:
    """Count what ``totals`` have counted."""
    counters.unrouted += totals.unrouted
    counters.unrouted_failed += totals.unrouted_failed
    for each in totals.series:
        series = counters.series(each.backend, each.model)
        for name, counted in zip(HISTOGRAMS, each.histograms, strict=True):
            _add_histogram(getattr(series, name), counted)
        for keyed in each.keys:
            _add_key(counters.key_counts(series, keyed.key), keyed)
    for metric in counters.by_metric:
        for labels, told in totals.by_metric.get(metric.name, ()):
            if isinstance(told, HistogramCounts):
                _add_histogram(counters.histogram(metric, labels), told)
            else:
                counters.count(metric, labels, told)


def _add_histogram(histogram: Histogram, counted: HistogramCounts) -> None:
    histogram.counts = [one + other for one, other in zip(histogram.counts, counted.counts, strict=True)]
    histogram.total += counted.total
    for place, trace_id, seconds in counted.exemplars:
        histogram.exemplars[place] = (trace_id, seconds)


def _series(backend: str, model: str, series: Series) -> SeriesTotals:
    histograms = [_counts(getattr(series, name)) for name in HISTOGRAMS]
    return SeriesTotals(backend, model, histograms, [_key(key, counts) for key, counts in series.keys.items()])


def _key(key: str, counts: KeyCounts) -> KeyTotals:
    requests = [(status, reason, number) for (status, reason), number in counts.requests.items()]
    tokens = counts.input_tokens, counts.cached_tokens, counts.from_usage, counts.from_chunks
    return KeyTotals(key, requests, *tokens)


def _add_key(counts: KeyCounts, totals: KeyTotals) -> None:
    for status, reason, number in totals.requests:
        counts.requests[status, reason] += number
    counts.input_tokens += totals.input_tokens
    counts.cached_tokens += totals.cached_tokens
    counts.from_usage += totals.from_usage
    counts.from_chunks += totals.from_chunks


def _counts(histogram: Histogram) -> HistogramCounts:
    exemplars = [(place, *example) for place, example in histogram.exemplars.items()]
    return HistogramCounts(list(histogram.counts), histogram.total, exemplars)
