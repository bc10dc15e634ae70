"""The load of a vLLM server, from its metrics: https://docs.vllm.ai/en/latest/usage/metrics.html."""

from __future__ import annotations

from collections.abc import Mapping
from time import time

from enginehouse.drivers import EngineResponse
from enginehouse.rescheduling import InstanceStatus
from enginehouse_kit.drivers import metric_sums, read_metrics

_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_USAGE = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")  # older servers have the second, some have both
_CACHE = "vllm:cache_config_info"
_SLEEP = "vllm:engine_sleep_state"
_LORAS = "vllm:lora_requests_info"
_NAMES = (_RUNNING, _WAITING, *_USAGE, _CACHE, _SLEEP, _LORAS)


def read_status(response: EngineResponse) -> InstanceStatus:
    """The status in Llumnix's names. Raises ``UpstreamError`` if ``response`` is no page of metrics.

    | of vLLM | of Llumnix |
    |---|---|
    | ``num_requests_running`` | ``num_running_requests``, ``scheduler_running_to_decode_requests_num`` |
    | ``num_requests_waiting`` | ``num_waiting_requests``, ``scheduler_waiting_to_decode_requests_num`` |
    | ``cache_config_info``: ``num_gpu_blocks`` x ``block_size`` | ``num_total_gpu_tokens`` |
    | that x ``kv_cache_usage_perc``, a share, for each rank | ``num_used_gpu_tokens`` |
    | ``engine_sleep_state`` | ``schedulable``: it is awake |
    | ``lora_requests_info``, the newest | ``active_loras``, ``max_loras``, which are not Llumnix's |
    """
    samples = read_metrics(response, _NAMES)
    sums = metric_sums(samples)
    running, waiting = int(sums.get(_RUNNING, 0)), int(sums.get(_WAITING, 0))
    tokens = {
        sample.labels.get("engine", ""): _whole(sample.labels, "num_gpu_blocks") * _whole(sample.labels, "block_size")
        for sample in samples
        if sample.name == _CACHE
    }
    usage = next((name for name in _USAGE if name in sums), "")
    used = sum(
        sample.value * tokens.get(sample.labels.get("engine", ""), next(iter(tokens.values()), 0))
        for sample in samples
        if sample.name == usage
    )
    asleep = any(s.name == _SLEEP and s.value and s.labels.get("sleep_state") != "awake" for s in samples)
    loras = max((sample for sample in samples if sample.name == _LORAS), key=lambda sample: sample.value, default=None)
    return InstanceStatus(
        schedulable=not asleep,
        timestamp_ms=int(time() * 1000),
        num_running_requests=running,
        scheduler_running_to_decode_requests_num=running,
        num_waiting_requests=waiting,
        scheduler_waiting_to_decode_requests_num=waiting,
        num_total_gpu_tokens=sum(tokens.values()),
        num_used_gpu_tokens=round(used),
        active_loras=_adapters(loras.labels) if loras is not None else (),
        max_loras=_whole(loras.labels, "max_lora") if loras is not None else 0,
    )


def _adapters(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Those of running and of waiting requests."""
    names = ",".join(labels.get(f"{state}_lora_adapters", "") for state in ("running", "waiting")).split(",")
    return tuple(dict.fromkeys(name for name in names if name))


def _whole(labels: object, name: str) -> int:
    text = labels.get(name, "") if isinstance(labels, dict) else ""
    return int(text) if text.isdecimal() else 0
