"""Reads the figures of an engine from its page of Prometheus metrics."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from math import isfinite
from typing import NamedTuple

from enginehouse.drivers import EngineResponse
from enginehouse.errors import UpstreamError

_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? +(?P<value>\S+)(?: +-?\d+)?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class MetricSample(NamedTuple):
    """One line of the page."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_metrics(response: EngineResponse, names: Collection[str]) -> list[MetricSample]:
    """Return the samples of the metrics ``names``, in the order of the page. Raises ``UpstreamError`` for another page.

    Parses only these metrics, because pages are long and the gateway reads them often.
    """
    if response.status != 200:
        raise UpstreamError(f"The engine answered {response.status} instead of its metrics")
    return list(_samples(response.body.decode("utf-8", "replace"), frozenset(names)))


def metric_sums(samples: Collection[MetricSample]) -> dict[str, float]:
    """Return the sum of each metric over all its labels: an engine with several ranks has one sample for each rank."""
    sums: dict[str, float] = {}
    for sample in samples:
        sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def _samples(page: str, names: frozenset[str]) -> Iterator[MetricSample]:
    beginnings = tuple(names)
    for line in page.splitlines():
        if line.startswith(beginnings) and (found := _SAMPLE.fullmatch(line.rstrip())) and found["name"] in names:
            yield MetricSample(found["name"], dict(_LABEL.findall(found["labels"] or "")), _number(found["value"]))


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise UpstreamError(f"The engine's metrics have '{text[:40]}' instead of a number") from None
    return number if isfinite(number) else 0.0  # NaN and infinity: a ratio to nothing
