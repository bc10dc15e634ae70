"""The load metrics of Llumnix: one figure for an instance, in single precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import NamedTuple

from enginehouse import ConfigError
from enginehouse.settings import did_you_mean
from enginehouse_kit.rescheduling import InstanceView
from enginehouse_rescheduling.latency import LatencyPredictor

_SINGLE = Struct("<f")

LARGEST = (2 - 2**-23) * 2.0**127
"""The largest finite number in single precision."""


def float32(number: float) -> float:
    """The nearest number in single precision. A number that is too large becomes infinite."""
    try:
        return float(_SINGLE.unpack(_SINGLE.pack(number))[0])
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


class PromptFigures(NamedTuple):
    """A request that is to be placed, in tokens; all 0 for rescheduling."""

    tokens: int = 0
    computed: int = 0
    """Tokens of other prompts that the instance has probably computed since its status."""
    cached: int = 0
    """Tokens of this prompt that the instance has in its prefix cache."""
    missing: int = 0
    """Tokens of this prompt that it does not have."""


class Circumstances(NamedTuple):
    """The facts that a metric reads besides the instance."""

    now_ms: int
    latency: LatencyPredictor | None = None
    """Only ``predicted_ttft`` and ``predicted_tpot`` need it."""
    prompt: PromptFigures = PromptFigures()


class Metric(NamedTuple):
    """A metric. ``larger_is_better``: whether a larger figure means less load."""

    name: str
    calculate: Callable[[InstanceView, Circumstances], float]
    larger_is_better: bool = False
    is_predicted: bool = False

    def load(self, instance: InstanceView, circumstances: Circumstances) -> float:
        """The figure of ``instance``, negated if larger is better: less is always less load."""
        value = float32(self.calculate(instance, circumstances))
        return -value if self.larger_is_better else value


def metric(name: str, key: str) -> Metric:
    """The metric of that name. Raises ``ConfigError``, naming the configuration key, if there is none."""
    if name not in METRICS:
        remedy = did_you_mean(name, list(METRICS)) or f"use one of {', '.join(METRICS)}"
        raise ConfigError(f"there is no metric '{name}'", key=key, remedy=remedy)
    return METRICS[name]


def kv_cache_usage_ratio_projected(instance: InstanceView, circumstances: Circumstances) -> float:
    """The share of the KV cache that all known requests will use. Can exceed 1."""
    status = instance.status
    if not status.num_total_gpu_tokens:
        return LARGEST
    tokens = (
        status.num_used_gpu_tokens
        + status.num_uncomputed_tokens_all_waiting_prefills
        + status.num_unallocated_tokens_scheduler_running_prefills
        + status.num_unallocated_tokens_hybrid_scheduler_waiting_decodes
        + instance.inflight.num_tokens_inflight_dispatch_decode_requests
    )
    return float32(tokens) / float32(status.num_total_gpu_tokens)


def decode_batch_size(instance: InstanceView, circumstances: Circumstances) -> int:
    """The requests that decode now or later."""
    status = instance.status
    return (
        status.hybrid_scheduler_waiting_to_decode_requests_num
        + status.num_loading_requests
        + status.scheduler_waiting_to_decode_requests_num
        + status.scheduler_running_to_decode_requests_num
        + instance.inflight.num_inflight_dispatch_decode_requests
    )


def num_waiting_requests(instance: InstanceView, circumstances: Circumstances) -> int:
    """The requests that wait."""
    return instance.status.num_waiting_requests + instance.inflight.num_inflight_dispatch_requests


def all_prefills_tokens_num(instance: InstanceView, circumstances: Circumstances) -> int:
    """The tokens of prompts that are still to be computed."""
    return (
        instance.status.num_uncomputed_tokens_all_waiting_prefills
        + instance.status.num_uncomputed_tokens_scheduler_running_prefills
        + instance.inflight.num_uncomputed_tokens_inflight_dispatch_prefill_requests
        - circumstances.prompt.computed
    )


def all_decodes_tokens_num(instance: InstanceView, circumstances: Circumstances) -> int:
    """The tokens of the requests of ``decode_batch_size``."""
    status = instance.status
    return (
        status.hybrid_scheduler_waiting_to_decode_tokens_num
        + status.scheduler_waiting_to_decode_tokens_num
        + status.scheduler_running_to_decode_tokens_num
        + status.num_tokens_loading_requests
        + instance.inflight.num_tokens_inflight_dispatch_decode_requests
    )


def num_requests(instance: InstanceView, circumstances: Circumstances) -> int:
    """All requests. One to a neutral instance that its status does not count yet counts twice, as in Llumnix."""
    status, inflight = instance.status, instance.inflight
    return (
        status.num_waiting_requests
        + status.num_loading_requests
        + status.num_running_requests
        + inflight.num_inflight_dispatch_prefill_requests
        + inflight.num_inflight_dispatch_decode_requests
    )


def num_tokens(instance: InstanceView, circumstances: Circumstances) -> int:
    """The tokens of the live requests that the gateway knows of."""
    return sum(request.num_tokens for request in instance.requests)


def kv_cache_hit_len(instance: InstanceView, circumstances: Circumstances) -> int:
    """The tokens of the prompt that are in the prefix cache."""
    return circumstances.prompt.cached


def cache_aware_all_prefills_tokens_num(instance: InstanceView, circumstances: Circumstances) -> int:
    """``all_prefills_tokens_num`` and what this prompt adds."""
    return circumstances.prompt.missing + all_prefills_tokens_num(instance, circumstances)


def predicted_tpot(instance: InstanceView, circumstances: Circumstances) -> float:
    """The milliseconds per output token with one more request; 0 if nothing decodes, infinite beyond the profile."""
    assert circumstances.latency is not None
    tokens = all_decodes_tokens_num(instance, circumstances) + circumstances.prompt.tokens
    return circumstances.latency.decode_step(decode_batch_size(instance, circumstances) + 1, tokens)


def predicted_ttft(instance: InstanceView, circumstances: Circumstances) -> float:
    """The milliseconds until the first token of a new request.

    An engine that must have computed everything of its status since then only has the prompts sent meanwhile.
    """
    latency, status, prompt = circumstances.latency, instance.status, circumstances.prompt.tokens
    assert latency is not None
    decodes = decode_batch_size(instance, circumstances)
    decode_tokens = all_decodes_tokens_num(instance, circumstances)

    def prefill(tokens: int) -> float:
        return latency.prefill(tokens, instance.max_num_batched_tokens, decodes, decode_tokens)

    existing = prefill(
        status.num_uncomputed_tokens_all_waiting_prefills + status.num_uncomputed_tokens_scheduler_running_prefills
    )
    if existing == float("inf"):
        return existing
    elapsed = circumstances.now_ms - status.timestamp_ms
    if elapsed > int(existing):
        return prefill(instance.inflight.num_uncomputed_tokens_inflight_dispatch_prefill_requests + prompt)
    return prefill(all_prefills_tokens_num(instance, circumstances) + prompt) - elapsed


METRICS: Mapping[str, Metric] = {
    each.name: each
    for each in (
        *(
            Metric(function.__name__, function)
            for function in (
                kv_cache_usage_ratio_projected,
                decode_batch_size,
                num_waiting_requests,
                all_prefills_tokens_num,
                all_decodes_tokens_num,
                num_requests,
                num_tokens,
                cache_aware_all_prefills_tokens_num,
            )
        ),
        Metric("kv_cache_hit_len", kv_cache_hit_len, larger_is_better=True),
        Metric("predicted_ttft", predicted_ttft, is_predicted=True),
        Metric("predicted_tpot", predicted_tpot, is_predicted=True),
    )
}
"""All metrics by name."""
