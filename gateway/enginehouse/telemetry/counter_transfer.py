"""Moves what a worker has counted into the counters of the process that shows them."""

from __future__ import annotations

import msgspec

from enginehouse.telemetry.counters import HISTOGRAMS, Counters, Histogram, KeyCounts

HistogramCounts = tuple[list[int], float, list[tuple[int, str, float]]]
"""What a ``Histogram`` has counted: in each bucket, the sum, and the examples by their buckets."""
KeyTotals = tuple[str, list[tuple[int, str, int]], list[int]]
"""A key, its requests by status and reason, and its ``_TOKENS``."""
_TOKENS = ("input_tokens", "cached_tokens", "from_usage", "from_chunks")


class CountedTotals(msgspec.Struct, array_like=True):
    """What ``Counters`` have counted.

    ``series``: by backend and model, its ``HISTOGRAMS`` and its keys. ``by_metric``: by the metric's name, with the
    values of its labels.
    """

    unrouted: int
    unrouted_failed: int
    series: list[tuple[str, str, list[HistogramCounts], list[KeyTotals]]]
    by_metric: dict[str, list[tuple[tuple[str, ...], int | HistogramCounts]]]


def take(counters: Counters) -> CountedTotals:
    """Everything that ``counters`` have counted, which then start over. Swaps are the owner's alone."""
    totals = CountedTotals(
        counters.unrouted,
        counters.unrouted_failed,
        [
            (
                backend,
                model,
                [_counts(getattr(series, name)) for name in HISTOGRAMS],
                [_key(key, counts) for key, counts in series.keys.items()],
            )
            for backend, model, series in counters
        ],
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
    for counted in counters.by_metric.values():
        counted.clear()
    return totals


def add(counters: Counters, totals: CountedTotals) -> None:
    """Count what ``totals`` have counted."""
    counters.unrouted += totals.unrouted
    counters.unrouted_failed += totals.unrouted_failed
    for backend, model, histograms, keys in totals.series:
        series = counters.series(backend, model)
        for name, counted in zip(HISTOGRAMS, histograms, strict=True):
            _add_histogram(getattr(series, name), counted)
        for key, requests, tokens in keys:
            counts = counters.key_counts(series, key)
            for status, reason, number in requests:
                counts.requests[status, reason] += number
            for name, number in zip(_TOKENS, tokens, strict=True):
                setattr(counts, name, getattr(counts, name) + number)
    for metric in counters.by_metric:
        for labels, told in totals.by_metric.get(metric.name, ()):
            if isinstance(told, int):
                counters.count(metric, labels, told)
            else:
                _add_histogram(counters.histogram(metric, labels), told)


def _add_histogram(histogram: Histogram, counted: HistogramCounts) -> None:
    counts, total, exemplars = counted
    histogram.counts = [one + other for one, other in zip(histogram.counts, counts, strict=True)]
    histogram.total += total
    for place, trace_id, seconds in exemplars:
        histogram.exemplars[place] = (trace_id, seconds)


def _key(key: str, counts: KeyCounts) -> KeyTotals:
    requests = [(status, reason, number) for (status, reason), number in counts.requests.items()]
    return key, requests, [getattr(counts, name) for name in _TOKENS]


def _counts(histogram: Histogram) -> HistogramCounts:
    exemplars = [(place, *example) for place, example in histogram.exemplars.items()]
    return list(histogram.counts), histogram.total, exemplars
