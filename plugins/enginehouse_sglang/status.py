"""The load of an SGLang server, from its metrics: https://docs.sglang.ai/references/production_metrics.html."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from time import time

from enginehouse.drivers import EngineResponse
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.drivers import MetricSample, metric_sums, read_metrics

_RUNNING = "sglang:num_running_reqs"
_WAITING = "sglang:num_queue_reqs"
_USED = "sglang:num_used_tokens"
_TOTAL = "sglang:max_total_num_tokens"
_USAGE = "sglang:token_usage"
_SAME_REQUESTS = ("tp_rank", "pp_rank", "moe_ep_rank")


def read_status(response: EngineResponse) -> InstanceStatus:
    """The status in Llumnix's names. Raises ``UpstreamError`` if ``response`` is no page of metrics.

    | of SGLang | of Llumnix |
    |---|---|
    | ``num_running_reqs`` | ``num_running_requests``, ``scheduler_running_to_decode_requests_num`` |
    | ``num_queue_reqs`` | ``num_waiting_requests``, ``scheduler_waiting_to_decode_requests_num`` |
    | ``num_used_tokens`` | ``num_used_gpu_tokens`` |
    | ``max_total_num_tokens``, else ``num_used_tokens`` / ``token_usage`` | ``num_total_gpu_tokens`` |
    """
    samples = _of_first_ranks(read_metrics(response, (_RUNNING, _WAITING, _USED, _TOTAL, _USAGE)))
    sums, groups = metric_sums(samples), sum(sample.name == _USAGE for sample in samples)
    running, waiting = int(sums.get(_RUNNING, 0)), int(sums.get(_WAITING, 0))
    used, usage = sums.get(_USED, 0.0), sums.get(_USAGE, 0.0)
    return InstanceStatus(
        timestamp_ms=int(time() * 1000),
        num_running_requests=running,
        scheduler_running_to_decode_requests_num=running,
        num_waiting_requests=waiting,
        scheduler_waiting_to_decode_requests_num=waiting,
        num_total_gpu_tokens=round(sums.get(_TOTAL) or (used / usage * groups if usage else 0)),
        num_used_gpu_tokens=round(used),
    )


def _of_first_ranks(samples: Sequence[MetricSample]) -> Collection[MetricSample]:
    """One sample of those that differ only in the ranks of tensor and pipeline parallelism.

    The processes of such a group work on the same requests, and each may report them. Those of other ``dp_rank``
    have requests of their own.
    """
    first: dict[object, MetricSample] = {}
    for sample in samples:
        others = frozenset(label for label in sample.labels.items() if label[0] not in _SAME_REQUESTS)
        first.setdefault((sample.name, others), sample)
    return first.values()
