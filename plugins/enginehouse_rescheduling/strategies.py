"""The strategies ``llumnix_load`` and ``slo``: they route by the figures that engines report."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import msgspec

from enginehouse import (
    Candidate,
    ClusterView,
    InFlight,
    InstanceView,
    RateLimited,
    Requirements,
    ReschedulingSettings,
    Role,
    Strategy,
    Verdict,
)
from enginehouse_rescheduling.failing import failed_domain
from enginehouse_rescheduling.float32 import float32
from enginehouse_rescheduling.latency.predictor import LatencyPredictor
from enginehouse_rescheduling.metrics import Circumstances, Metric, PromptFigures, metric, predicted_ttft

Rank = tuple[int, float]
"""A class and the load within it; the least comes first. Classes: below the threshold, full, without figures."""

_FREE, _FULL, _UNKNOWN = range(3)


class FiguresStrategy(Strategy):
    """Picks the candidate with the least load. Those that fail or report nothing come last, by pending requests.

    Between two views, it adds each request to the figures of the instance that it picked.
    """

    def __init__(self) -> None:
        self._settings = ReschedulingSettings()
        self._instances: dict[str, InstanceView] = {}
        self._now_ms = 0

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        failed = failed_domain(view, settings.failover_domain, settings.instance_staleness)
        self._settings = settings
        self._now_ms = view.now_ms
        self._instances = {each.id: each for each in view.instances if each.id not in failed}

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        ranks = self._ranks(requirements, candidates)
        place = min(range(len(candidates)), key=lambda place: (ranks[place], candidates[place].load.pending, place))
        self._check(ranks[place])
        backend = candidates[place].backend
        if (instance := self._instances.get(backend)) is not None:
            self._instances[backend] = _with_request(instance, requirements.estimated_tokens)
        return candidates[place]

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return the load of each candidate as the part ``load``; less is better."""
        ranks = self._ranks(requirements, candidates)
        return [Verdict(None, {} if rank == _UNKNOWN else {"load": load}) for rank, load in ranks]

    @abstractmethod
    def _rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        """The rank of an instance that reports figures."""

    def _check(self, best: Rank) -> None:
        """Raise a ``RequestError`` if even the best candidate must not get the request."""

    def _ranks(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Rank]:
        known = self._instances
        return [
            self._rank(known[each.backend], requirements) if each.backend in known else (_UNKNOWN, 0.0)
            for each in candidates
        ]


class LlumnixLoad(FiguresStrategy):
    """Llumnix's ``load-balance``: picks the instance with the least load by a metric of its role.

    An instance at or above the threshold of its role is picked only if all are.
    """

    class Config(msgspec.Struct, frozen=True):
        """Metrics and thresholds: ``neutral_metric``, ``neutral_threshold``, ``prefill_...``, ``decode_...``."""

        neutral_metric: str = "all_prefills_tokens_num"
        neutral_threshold: float = 8192
        prefill_metric: str = "all_prefills_tokens_num"
        prefill_threshold: float = 2048
        decode_metric: str = "kv_cache_usage_ratio_projected"
        decode_threshold: float = 1.0

    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        config = config or self.Config()
        self._rules: dict[Role, tuple[Metric, float]] = {}
        for role in Role:
            key = f"{role.value}_metric"
            found = metric(getattr(config, key), f"plugins.llumnix_load.{key}")
            sign = -1 if found.larger_is_better else 1
            self._rules[role] = (found, sign * float32(getattr(config, f"{role.value}_threshold")))
        predicted = any(found.is_predicted for found, _ in self._rules.values())
        self._latency = LatencyPredictor.of(ReschedulingSettings()) if predicted else None

    def _rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        found, threshold = self._rules[instance.role]
        prompt = PromptFigures(tokens=requirements.estimated_tokens)
        load = found.load(instance, Circumstances(self._now_ms, self._latency, prompt))
        return _FREE if load < threshold else _FULL, load


class Slo(FiguresStrategy):
    """Llumnix's ``slo``: picks the instance with the shortest predicted time to first token.

    Refuses the request with 429 if every instance is at or above ``ttft_slo * ttft_slo_dispatch_threshold``. Without
    figures it picks by pending requests.
    """

    def __init__(self) -> None:
        super().__init__()
        self._latency = LatencyPredictor.of(self._settings)

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        if (settings.ttft_profile, settings.tpot_profile) != (self._settings.ttft_profile, self._settings.tpot_profile):
            self._latency = LatencyPredictor.of(settings)
        super().on_view(view, settings)

    def _rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        prompt = PromptFigures(tokens=requirements.estimated_tokens)
        time = float32(predicted_ttft(instance, Circumstances(self._now_ms, self._latency, prompt)))
        return _FREE if time < self._limit_ms() else _FULL, time

    def _check(self, best: Rank) -> None:
        if best[0] == _FULL:
            limit = self._limit_ms() / 1000
            raise RateLimited(f"No instance is expected to begin an answer within {limit:g} s; try again later")

    def _limit_ms(self) -> float:
        settings = self._settings
        return float32(float32(settings.ttft_slo * 1000) * float32(settings.ttft_slo_dispatch_threshold))


def _with_request(instance: InstanceView, tokens: int) -> InstanceView:
    """The instance with one more request that its engine does not report yet, counted by its role."""
    before = instance.inflight
    prefill, decode = instance.role is not Role.DECODE, instance.role is not Role.PREFILL
    inflight = InFlight(
        num_inflight_dispatch_requests=before.num_inflight_dispatch_requests + 1,
        num_inflight_dispatch_prefill_requests=before.num_inflight_dispatch_prefill_requests + prefill,
        num_inflight_dispatch_decode_requests=before.num_inflight_dispatch_decode_requests + decode,
        num_uncomputed_tokens_inflight_dispatch_prefill_requests=(
            before.num_uncomputed_tokens_inflight_dispatch_prefill_requests + tokens * prefill
        ),
        num_tokens_inflight_dispatch_decode_requests=(
            before.num_tokens_inflight_dispatch_decode_requests + tokens * decode
        ),
    )
    return msgspec.structs.replace(instance, inflight=inflight)
