"""The load of an SGLang server, from its metrics: https://docs.sglang.ai/references/production_metrics.html."""

from __future__ import annotations

from time import time

from enginehouse import EngineResponse, InstanceStatus, metric_sums, read_metrics

_RUNNING = "sglang:num_running_reqs"
_WAITING = "sglang:num_queue_reqs"
_USED = "sglang:num_used_tokens"
_TOTAL = "sglang:max_total_num_tokens"
_USAGE = "sglang:token_usage"


def read_status(response: EngineResponse) -> InstanceStatus:
    """The status in Llumnix's names. Raises ``UpstreamError`` if ``response`` is no page of metrics.

    | of SGLang | of Llumnix |
    |---|---|
    | ``num_running_reqs`` | ``num_running_requests``, ``scheduler_running_to_decode_requests_num`` |
    | ``num_queue_reqs`` | ``num_waiting_requests``, ``scheduler_waiting_to_decode_requests_num`` |
    | ``num_used_tokens`` | ``num_used_gpu_tokens`` |
    | ``max_total_num_tokens``, else ``num_used_tokens`` / ``token_usage`` | ``num_total_gpu_tokens`` |
    """
    sums = metric_sums(read_metrics(response, (_RUNNING, _WAITING, _USED, _TOTAL, _USAGE)))
    running, waiting = int(sums.get(_RUNNING, 0)), int(sums.get(_WAITING, 0))
    used, usage = sums.get(_USED, 0.0), sums.get(_USAGE, 0.0)
    return InstanceStatus(
        timestamp_ms=int(time() * 1000),
        num_running_requests=running,
        scheduler_running_to_decode_requests_num=running,
        num_waiting_requests=waiting,
        scheduler_waiting_to_decode_requests_num=waiting,
        num_total_gpu_tokens=round(sums.get(_TOTAL) or (used / usage if usage else 0)),
        num_used_gpu_tokens=round(used),
    )
