"""The strategy ``llumnix_load``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from enginehouse import Candidate, Extractor, Requirements, Role
from enginehouse.rescheduling import ReschedulingSettings
from enginehouse_kit.prefix_index import PrefixIndex
from enginehouse_kit.prefixes import ChunkExtractor, chunks_of
from enginehouse_kit.rescheduling import ClusterView, InstanceView
from enginehouse_rescheduling.by_figures import FREE, FULL, Rank, StrategyByFigures
from enginehouse_rescheduling.metrics import Circumstances, Metric, PromptFigures, float32, metric
from enginehouse_rescheduling.prefill_progress import PrefillProgress

_CHUNK_TOKENS = 256
"""As in Llumnix."""
_MOST_CHUNKS = 4096
"""The most chunks to remember for an engine that does not report the size of its cache: a million tokens."""


class LlumnixLoad(StrategyByFigures):
    """Llumnix's ``load-balance``: picks the instance with the least load by a metric of its role.

    An instance at or above the threshold of its role is picked only if all are. With ``cache_aware``, of the instances
    that read prompts the one with the least to compute comes first, without the part of the prompt in its cache.
    """

    class Config(msgspec.Struct, frozen=True):
        """Metrics and thresholds, such as ``neutral_metric``; ``cache_aware``; ``predict_progress``.

        ``cache_aware``: count the cached part of prompts of at least ``cache_aware_min_tokens``, by
        ``cache_locality_metric``. ``predict_progress``: after ``progress_samples`` steps, subtract the tokens that
        prefill instances have probably computed since they reported.
        """

        neutral_metric: str = "all_prefills_tokens_num"
        neutral_threshold: float = 8192
        prefill_metric: str = "all_prefills_tokens_num"
        prefill_threshold: float = 2048
        decode_metric: str = "kv_cache_usage_ratio_projected"
        decode_threshold: float = 1.0
        cache_aware: bool = False
        cache_aware_min_tokens: Annotated[int, msgspec.Meta(ge=0)] = 1024
        cache_locality_metric: str = "cache_aware_all_prefills_tokens_num"
        predict_progress: bool = False
        progress_samples: Annotated[int, msgspec.Meta(ge=1)] = 20

    def __init__(self, config: Config | None = None) -> None:
        self._config = config = config or self.Config()
        self._rules = {role: _rule(config, role) for role in Role}
        self._locality = _metric(config, "cache_locality_metric")
        metrics = (self._locality, *(found for found, _ in self._rules.values()))
        super().__init__(predicts=any(each.is_predicted for each in metrics))
        self._prefixes = PrefixIndex()
        self._progress = PrefillProgress(config.progress_samples)

    def extractors(self) -> Sequence[Extractor]:
        return [ChunkExtractor(_CHUNK_TOKENS, self._config.cache_aware_min_tokens)] if self._config.cache_aware else []

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        super().on_view(view, settings)
        self._prefixes.keep_only(self._instances)
        if self._config.predict_progress:
            self._progress.learn(view)

    def _rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        found, threshold = self._rules[instance.role]
        circumstances = Circumstances(self._now_ms, self._latency, self._figures(instance, requirements))
        load = found.load(instance, circumstances)
        reads = instance.role is not Role.DECODE
        locality = self._locality.load(instance, circumstances) if reads and chunks_of(requirements) else 0.0
        return Rank(FREE if load < threshold else FULL, locality, load)

    def _figures(self, instance: InstanceView, requirements: Requirements) -> PromptFigures:
        chunks = chunks_of(requirements)
        tokens = max(requirements.estimated_tokens, len(chunks) * _CHUNK_TOKENS)  # chunks have the tools, too
        cached = min(tokens, self._prefixes.leading(instance.id, chunks) * _CHUNK_TOKENS) if chunks else 0
        return PromptFigures(
            tokens=tokens,
            computed=self._progress.computed(instance, self._now_ms),
            cached=cached,
            missing=tokens - cached,
        )

    def _place(self, candidate: Candidate, requirements: Requirements, *, prefill: bool, decode: bool) -> None:
        super()._place(candidate, requirements, prefill=prefill, decode=decode)
        if prefill and (instance := self._instances.get(candidate.backend)) is not None:
            most = instance.status.num_total_gpu_tokens // _CHUNK_TOKENS or _MOST_CHUNKS
            self._prefixes.note(instance.id, chunks_of(requirements), most)


def _rule(config: LlumnixLoad.Config, role: Role) -> tuple[Metric, float]:
    """The metric of a role and its threshold, negated if larger is better."""
    found = _metric(config, f"{role.value}_metric")
    sign = -1 if found.larger_is_better else 1
    return found, sign * float32(getattr(config, f"{role.value}_threshold"))


def _metric(config: LlumnixLoad.Config, key: str) -> Metric:
    return metric(getattr(config, key), f"plugins.llumnix_load.{key}")
