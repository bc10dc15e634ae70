"""Metrics that are pushed to a collector."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from enginehouse_otlp.messages import MetricBatch
from enginehouse_otlp.metric_push import MetricPush
from tests.support.waiting import until


async def test_metrics_that_could_not_be_read_once_are_pushed_again() -> None:
    sent: list[MetricBatch] = []
    failures = iter([ValueError("the plugin's fault")])

    def collect() -> Iterator[Metric]:
        for error in failures:
            raise error
        yield GaugeMetricFamily("m", "What.", value=1.0)

    push = MetricPush(collect, sent.append, 0.001)
    push.start()
    await until(lambda: sent)
    push.close()
    assert sent[0].metrics[0].name == "m"
