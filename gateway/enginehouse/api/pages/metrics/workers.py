"""The processes that relay requests, where there are several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from prometheus_client.core import Metric

from enginehouse.api.pages.metrics.families import numbers
from enginehouse.telemetry import metric_list as metrics


class WorkerFigures(NamedTuple):
    """``replaced``: how many workers were replaced, by reason. ``busy``: the share of each loop; live."""

    replaced: Mapping[str, int]
    busy: Mapping[int, float]


def worker_metrics(workers: WorkerFigures) -> Iterator[Metric]:
    """The families of workers, empty in a gateway of one process."""
    yield numbers(metrics.WORKERS_REPLACED, (([why], count) for why, count in workers.replaced.items()))
    yield numbers(metrics.WORKER_BUSY, (([str(number)], busy) for number, busy in workers.busy.items()))
