"""Prometheus's families of the listed metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from enginehouse.telemetry.counters import Histogram
from enginehouse.telemetry.metric_list import MetricInfo

Numbers = Iterable[tuple[Sequence[str], float]]
"""The values of the labels, and the value of their series."""
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
        family.add_metric(labels, list(zip(bounds, accumulate(histogram.counts), strict=True)), histogram.total)
    return family
