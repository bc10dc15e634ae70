"""``/metrics``: vLLM's metrics under vLLM's names, in Prometheus' text format."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

from enginehouse_sim.simulator.domain.constants import SchedulerConstants
from enginehouse_sim.simulator.domain.outputs import SchedulerStats
from enginehouse_sim.simulator.domain.request import RequestStatus
from enginehouse_sim.simulator.scheduler.state import SchedulerState
from enginehouse_sim.simulator.server.engine.batching_engine import BatchingEngine
from enginehouse_sim.simulator.server.settings import Settings
from enginehouse_sim.simulator.server.telemetry.metrics import Metrics

_DEFERRED = (RequestStatus.WAITING_FOR_REMOTE_KVS, RequestStatus.WAITING_FOR_FSM)
_SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")


class MetricsPage:
    """Renders one engine's figures, labelled with its first model."""

    def __init__(self, settings: Settings, metrics: Metrics, engine: BatchingEngine) -> None:
        self._labels = _labels({"engine": "0", "model_name": settings.models[0]})
        self._num_loras = len(settings.loras)
        self._metrics = metrics
        self._engine = engine

    def render(self) -> str:
        stats = self._engine.stats()
        lines = [*self._gauges(stats), *self._counters(stats), *self._requests(), *self._histograms()]
        state = self._engine.state
        lines += _one("cache_config_info", "gauge", _labels({"engine": "0", **_cache_config(state.constants)}), 1)
        if self._num_loras:
            max_loras = state.constants.max_loras or self._num_loras
            lines += _one("lora_requests_info", "gauge", _labels(_loras(state, max_loras)), time.time())
        return "\n".join([*lines, ""])

    def _gauges(self, stats: SchedulerStats) -> Iterator[str]:
        yield from self._line("num_requests_running", "gauge", stats.num_running_reqs)
        yield from self._line("num_requests_waiting", "gauge", stats.num_waiting_reqs)
        deferred = sum(request.status in _DEFERRED for request in self._engine.state.waiting)
        reasons = {"capacity": stats.num_waiting_reqs - deferred, "deferred": deferred}
        yield from self._split("num_requests_waiting_by_reason", "gauge", "reason", reasons)
        yield from self._line("kv_cache_usage_perc", "gauge", stats.kv_cache_usage)
        states = {name: int(self._engine.sleep_level == level) for level, name in enumerate(_SLEEP_STATES)}
        yield from self._split("engine_sleep_state", "gauge", "sleep_state", states)

    def _counters(self, stats: SchedulerStats) -> Iterator[str]:
        metrics = self._metrics
        counters = {
            "prefix_cache_queries": stats.prefix_cache_queries,
            "prefix_cache_hits": stats.prefix_cache_hits,
            "external_prefix_cache_queries": stats.external_cache_queries,
            "external_prefix_cache_hits": stats.external_cache_hits,
            "num_preemptions": stats.num_preemptions,
            "prompt_tokens": metrics.prompt_tokens,
            "prompt_tokens_cached": metrics.cached_tokens,
            "generation_tokens": metrics.generation_tokens,
        }
        if self._engine.state.constants.use_spec_decode:
            counters["spec_decode_num_drafts"] = metrics.num_drafts
            counters["spec_decode_num_draft_tokens"] = stats.num_draft_tokens
            counters["spec_decode_num_accepted_tokens"] = stats.num_accepted_tokens
            places = {str(place): count for place, count in enumerate(metrics.accepted_at)}
            yield from self._split("spec_decode_num_accepted_tokens_per_pos_total", "counter", "position", places)
        for name, count in counters.items():
            yield from self._line(f"{name}_total", "counter", count)
        external = min(stats.external_cache_hits, metrics.cached_tokens)
        sources = {
            "local_compute": metrics.prompt_tokens - metrics.cached_tokens,
            "local_cache_hit": metrics.cached_tokens - external,
            "external_kv_transfer": external,
        }
        yield from self._split("prompt_tokens_by_source_total", "counter", "source", sources)

    def _requests(self) -> Iterator[str]:
        yield from self._split("request_success_total", "counter", "finished_reason", self._metrics.finished)

    def _histograms(self) -> Iterator[str]:
        for name, histogram in self._metrics.histograms.items():
            yield from histogram.lines(f"vllm:{name}", self._labels)

    def _split(self, name: str, kind: str, label: str, figures: Mapping[str, float]) -> Iterator[str]:
        """One figure for each value of ``label``."""
        yield f"# TYPE vllm:{name} {kind}"
        for value, figure in figures.items():
            yield f'vllm:{name}{{{self._labels},{label}="{value}"}} {figure}'

    def _line(self, name: str, kind: str, value: float) -> Iterable[str]:
        return _one(name, kind, self._labels, value)


def _cache_config(constants: SchedulerConstants) -> dict[str, str]:
    return {
        "block_size": str(constants.block_size),
        "num_gpu_blocks": str(constants.total_gpu_blocks),
        "enable_prefix_caching": str(constants.enable_prefix_caching),
    }


def _loras(state: SchedulerState, max_loras: int) -> dict[str, str]:
    running = {request.lora for request in state.running}
    waiting = {request.lora for request in state.waiting}
    return {
        "max_lora": str(max_loras),
        "running_lora_adapters": ",".join(sorted(lora for lora in running if lora)),
        "waiting_lora_adapters": ",".join(sorted(lora for lora in waiting if lora)),
    }


def _labels(labels: Mapping[str, str]) -> str:
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in labels.items()
    }
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())


def _one(name: str, kind: str, labels: str, value: float) -> Iterable[str]:
    return (f"# TYPE vllm:{name} {kind}", f"vllm:{name}{{{labels}}} {value}")
