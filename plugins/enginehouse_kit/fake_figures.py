"""Figures for the tests of observers."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse.services import MetricInfo
from enginehouse_kit.expect import expect


class FakeFigures:
    """The ``Figures`` of an observer with these ``metrics``. It counts in these only, and not above any bound."""

    def __init__(self, metrics: Sequence[MetricInfo]) -> None:
        for metric in metrics:
            expect(isinstance(metric, MetricInfo), f"metrics must be of MetricInfo, got {metric!r}")
            expect(metric.kind != "gauge", f"'{metric.name}' must be a counter or a histogram: gauges do not add up")
        self._series: dict[MetricInfo, dict[tuple[str, ...], tuple[int, float]]] = {each: {} for each in metrics}

    def count(self, metric: MetricInfo, labels: Sequence[str] = (), number: int = 1) -> None:
        self._add("counter", metric, labels, number, 0.0)

    def observe(self, metric: MetricInfo, labels: Sequence[str], seconds: float) -> None:
        self._add("histogram", metric, labels, 1, seconds)

    def measured(self, metric: MetricInfo) -> Sequence[tuple[tuple[str, ...], int, float]]:
        return [(labels, *values) for labels, values in self._series[metric].items()]

    def _add(self, kind: str, metric: MetricInfo, labels: Sequence[str], number: int, seconds: float) -> None:
        expect(metric in self._series, f"'{metric.name}' must be among the metrics of the class")
        expect(metric.kind == kind, f"'{metric.name}' is a {metric.kind}, not a {kind}")
        fits = len(labels) == len(metric.labels) and all(isinstance(each, str) for each in labels)
        expect(fits, f"'{metric.name}' needs texts for the labels {metric.labels}, got {labels!r}")
        before = self._series[metric].get(tuple(labels), (0, 0.0))
        self._series[metric][tuple(labels)] = before[0] + number, before[1] + seconds
