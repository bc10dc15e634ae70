"""Prometheus's families of the listed metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, Exemplar, GaugeMetricFamily, HistogramMetricFamily, Metric

from enginehouse.telemetry.counters import Histogram
from enginehouse.telemetry.metric_list import MetricInfo

Numbers = Iterable[tuple[Sequence[str], float]]
"""The values of the labels, and the value of their series."""
_Bucket = tuple[str, float] | tuple[str, float, Exemplar]
Histograms = Iterable[tuple[Sequence[str], Histogram]]


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


def from_zero(known: Iterable[tuple[str, ...]], counted: Iterable[tuple[tuple[str, ...], float]]) -> Numbers:
    """``counted``, and 0 for the ``known`` labels that are not: a rate wants a first value."""
    return {**dict.fromkeys(known, 0), **dict(counted)}.items()
