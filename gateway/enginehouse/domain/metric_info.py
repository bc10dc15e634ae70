"""The description of a metric."""

from __future__ import annotations

from typing import Literal, NamedTuple


class MetricInfo(NamedTuple):
    """A metric. Prometheus shows a counter with ``_total``; times are in seconds."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    text: str
    labels: tuple[str, ...] = ()
