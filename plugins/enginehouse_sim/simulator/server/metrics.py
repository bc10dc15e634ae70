"""``/metrics``: vLLM's metrics under vLLM's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from enginehouse_sim.simulator.core.engine_core import CoreStep
from enginehouse_sim.simulator.server.batching_engine import BatchingEngine

_FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_STEP_TOKENS = (1, *(2**power for power in range(3, 15)))
_REASONS = ("stop", "length", "abort", "error")
_SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")


class Metrics(Collector):
    """Counters and histograms since the engine's start, with vLLM's bounds, and the figures of ``engine`` now.

    All are labelled with ``model``. Times are in seconds.
    """

    def __init__(self, engine: BatchingEngine, model: str = "sim") -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._engine = engine
        self._labels = {"engine": "0", "model_name": model}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self.prompt_tokens = self._counter("prompt_tokens")
        self.cached_tokens = self._counter("prompt_tokens_cached")
        self.generation_tokens = self._counter("generation_tokens")
        self.drafts = self._counter("spec_decode_num_drafts")
        finished = Counter(
            "vllm:request_success", "by reason", [*self._labels, "finished_reason"], registry=self._registry
        )
        self.finished = {reason: finished.labels(**self._labels, finished_reason=reason) for reason in _REASONS}
        self.time_to_first_token = self._histogram("time_to_first_token_seconds", _FIRST_TOKEN)
        self.inter_token_latency = self._histogram("inter_token_latency_seconds", _TOKEN)
        self.request_latency = self._histogram("e2e_request_latency_seconds", _REQUEST)
        self.queue_time = self._histogram("request_queue_time_seconds", _REQUEST)
        self.step_tokens = self._histogram("iteration_tokens_total", _STEP_TOKENS)

    def page(self) -> bytes:
        return generate_latest(self._registry)

    def on_step(self, result: CoreStep) -> None:
        if result.scheduled.total_num_scheduled_tokens:
            self.step_tokens.observe(result.scheduled.total_num_scheduled_tokens)
        if drafts := result.scheduled.scheduled_spec_decode_tokens:
            self.drafts.inc(len(drafts))

    def collect(self) -> Iterator[Metric]:
        engine, state = self._engine, self._engine.state
        constants = state.constants
        yield self._gauge("num_requests_running", len(state.running))
        yield self._gauge("num_requests_waiting", len(state.waiting) + len(state.paused))
        yield self._gauge("kv_cache_usage_perc", state.kv_cache.usage)
        for name, count in msgspec.structs.asdict(state.totals).items():
            family = CounterMetricFamily(f"vllm:{name}", name, labels=list(self._labels))
            family.add_metric(list(self._labels.values()), count)
            yield family
        states = GaugeMetricFamily("vllm:engine_sleep_state", "sleep state", labels=[*self._labels, "sleep_state"])
        for level, name in enumerate(_SLEEP_STATES):
            states.add_metric([*self._labels.values(), name], engine.sleep_level == level)
        yield states
        cache = {
            "block_size": str(constants.block_size),
            "num_gpu_blocks": str(constants.total_gpu_blocks),
            "enable_prefix_caching": str(constants.enable_prefix_caching),
        }
        yield self._gauge("cache_config_info", 1, {"engine": "0", **cache})

    def _gauge(self, name: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
        labels = labels or self._labels
        family = GaugeMetricFamily(f"vllm:{name}", name, labels=list(labels))
        family.add_metric(list(labels.values()), value)
        return family

    def _counter(self, name: str) -> Counter:
        family = Counter(f"vllm:{name}", name, list(self._labels), registry=self._registry)
        return family.labels(**self._labels)

    def _histogram(self, name: str, bounds: Sequence[float]) -> Histogram:
        family = Histogram(f"vllm:{name}", name, list(self._labels), registry=self._registry, buckets=bounds)
        return family.labels(**self._labels)


class RequestMeter:
    """Measures one request, and adds it to the metrics."""

    def __init__(self, metrics: Metrics, arrival: float, prompt_tokens: int) -> None:
        self._metrics = metrics
        self._arrival = self._last = arrival
        self._prompt_tokens = prompt_tokens
        self._has_begun = False

    def scheduled(self, now: float) -> None:
        self._metrics.queue_time.observe(max(0.0, now - self._arrival))

    def tokens(self, count: int, cached_tokens: int, now: float) -> None:
        """The request got ``count`` tokens at once; ``cached_tokens`` of its prompt were cached."""
        metrics = self._metrics
        if self._has_begun:
            metrics.inter_token_latency.observe(now - self._last)
        else:
            self._read(cached_tokens)
            metrics.time_to_first_token.observe(now - self._arrival)
        self._last = now
        metrics.generation_tokens.inc(count)

    def finished(self, reason: str, now: float) -> None:
        self._metrics.finished[reason].inc()
        self._metrics.request_latency.observe(now - self._arrival)
        if not self._has_begun and reason != "abort":  # a pooling request: its prompt is computed now
            self._read(0)

    def _read(self, cached_tokens: int) -> None:
        """Count the prompt, which is computed now."""
        self._has_begun = True
        self._metrics.prompt_tokens.inc(self._prompt_tokens)
        self._metrics.cached_tokens.inc(max(0, min(cached_tokens, self._prompt_tokens)))
