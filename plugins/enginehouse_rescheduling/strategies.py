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
from enginehouse_rescheduling.metrics import (
    Circumstances,
    Metric,
    PromptFigures,
    decode_batch_size,
    metric,
    predicted_tpot,
    predicted_ttft,
)
from enginehouse_rescheduling.pairs import highest, lowest

Rank = tuple[int, float]
"""A class and the load within it; the least comes first. Classes: below the threshold, full, without figures."""

_FREE, _FULL, _UNKNOWN = range(3)
_SPLIT = {Role.PREFILL, Role.DECODE}


class FiguresStrategy(Strategy):
    """Picks the candidate with the least load. Those that fail or report nothing come last, by pending requests.

    Where instances with the roles prefill and decode serve a model, one of each serves a request: the first one reads
    the prompt, and the second one answers. Between two views, each request is added to the figures of its instances.
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
        if self._roles(candidates) >= _SPLIT:
            candidates = [each for each in candidates if self._role(each) is not Role.DECODE]
        chosen = self._least(candidates, self._ranks(requirements, candidates))
        role = self._role(chosen)
        self._place(chosen, requirements, prefill=role is not Role.DECODE, decode=role is not Role.PREFILL)
        return chosen

    def pick_decode(
        self, requirements: Requirements, candidates: Sequence[Candidate], prefill: Candidate
    ) -> Candidate | None:
        decoding = [each for each in candidates if self._role(each) is Role.DECODE]
        if self._role(prefill) is not Role.PREFILL or not decoding:
            return None
        ranks = [self._decode_rank(self._instances[each.backend], requirements) for each in decoding]
        chosen = self._least(decoding, ranks, decodes=True)
        self._place(chosen, requirements, prefill=False, decode=True)
        return chosen

    def explain(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Verdict]:
        """Return the load of each candidate as the part ``load``; less is better."""
        ranks = self._ranks(requirements, candidates)
        return [Verdict(None, {} if rank == _UNKNOWN else {"load": load}) for rank, load in ranks]

    @abstractmethod
    def _rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        """The rank of an instance that reports figures."""

    def _decode_rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        """Its rank for an answer whose prompt another instance has read."""
        return self._rank(instance, requirements)

    def _check(self, best: Rank, *, decodes: bool) -> None:
        """Raise a ``RequestError`` if even the best candidate must not get the request, or its answer only."""

    def _ranks(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Rank]:
        known = self._instances
        return [
            self._rank(known[each.backend], requirements) if each.backend in known else (_UNKNOWN, 0.0)
            for each in candidates
        ]

    def _least(self, candidates: Sequence[Candidate], ranks: Sequence[Rank], *, decodes: bool = False) -> Candidate:
        place = min(range(len(candidates)), key=lambda place: (ranks[place], candidates[place].load.pending, place))
        self._check(ranks[place], decodes=decodes)
        return candidates[place]

    def _role(self, candidate: Candidate) -> Role | None:
        """The role of an instance that reports figures."""
        instance = self._instances.get(candidate.backend)
        return instance.role if instance is not None else None

    def _roles(self, candidates: Sequence[Candidate]) -> set[Role | None]:
        return {self._role(each) for each in candidates}

    def _place(self, candidate: Candidate, requirements: Requirements, *, prefill: bool, decode: bool) -> None:
        """Count the request at an instance until the next view."""
        instance = self._instances.get(candidate.backend)
        if instance is not None:
            tokens = requirements.estimated_tokens
            self._instances[candidate.backend] = _with_request(instance, tokens, prefill, decode)


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

    Refuses the request with 429 if every instance is at or above ``ttft_slo * ttft_slo_dispatch_threshold``; where
    another instance answers, also if none is below ``tpot_slo * tpot_slo_dispatch_threshold``. Without figures it picks
    by pending requests. With ``adaptive_pd``, instances without answers read prompts and the fullest one that is fast
    enough answers, whatever their roles, and nothing is refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self._latency = LatencyPredictor.of(self._settings)

    def on_view(self, view: ClusterView, settings: ReschedulingSettings) -> None:
        if (settings.ttft_profile, settings.tpot_profile) != (self._settings.ttft_profile, self._settings.tpot_profile):
            self._latency = LatencyPredictor.of(settings)
        super().on_view(view, settings)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        known = [each for each in candidates if each.backend in self._instances]
        if not self._settings.adaptive_pd or not known:
            return super().pick(requirements, candidates)
        chosen = self._reader(requirements, known)
        self._place(chosen, requirements, prefill=True, decode=False)
        return chosen

    def pick_decode(
        self, requirements: Requirements, candidates: Sequence[Candidate], prefill: Candidate
    ) -> Candidate | None:
        if not self._settings.adaptive_pd or prefill.backend not in self._instances:
            return super().pick_decode(requirements, candidates, prefill)
        known = [each for each in candidates if each.backend in self._instances]
        chosen = self._answerer(known) or prefill
        self._place(chosen, requirements, prefill=False, decode=True)
        return chosen

    def _reader(self, requirements: Requirements, known: Sequence[Candidate]) -> Candidate:
        """With ``adaptive_pd``: the instance without answers that begins soonest, if there is one."""
        now = Circumstances(self._now_ms, self._latency)
        instances = [self._instances[each.backend] for each in known]
        allowed = [each for each in instances if each.reserved is not Role.DECODE] or instances
        idle = [each for each in allowed if decode_batch_size(each, now) < 1] or allowed
        best = min(idle, key=lambda each: (self._rank(each, requirements), each.reserved is not Role.PREFILL, each.id))
        return next(each for each in known if each.backend == best.id)

    def _answerer(self, known: Sequence[Candidate]) -> Candidate | None:
        """With ``adaptive_pd``: the slowest instance that is fast enough, else the fastest."""
        now = Circumstances(self._now_ms, self._latency)
        instances = [self._instances[each.backend] for each in known]
        allowed = [each for each in instances if each.reserved is not Role.PREFILL]
        if not allowed:
            return None
        limit, times = self._tpot_limit_ms(), {each.id: float32(predicted_tpot(each, now)) for each in allowed}
        fast = [each for each in allowed if times[each.id] < limit and predicted_ttft(each, now) < limit]
        reserved = [each for each in fast if each.reserved is Role.DECODE]
        best = highest(reserved or fast, times) or lowest(allowed, times)
        return next(each for each in known if best is not None and each.backend == best.id)

    def _rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        prompt = PromptFigures(tokens=requirements.estimated_tokens)
        time = float32(predicted_ttft(instance, Circumstances(self._now_ms, self._latency, prompt)))
        return _FREE if time < self._ttft_limit_ms() else _FULL, time

    def _decode_rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        prompt = PromptFigures(tokens=requirements.estimated_tokens)
        time = float32(predicted_tpot(instance, Circumstances(self._now_ms, self._latency, prompt)))
        return _FREE if time < self._tpot_limit_ms() else _FULL, time

    def _check(self, best: Rank, *, decodes: bool) -> None:
        if best[0] == _FULL:
            limit = self._tpot_limit_ms() if decodes else self._ttft_limit_ms()
            what = "make a token" if decodes else "begin an answer"
            raise RateLimited(f"No instance is expected to {what} within {limit / 1000:g} s; try again later")

    def _ttft_limit_ms(self) -> float:
        settings = self._settings
        return float32(float32(settings.ttft_slo * 1000) * float32(settings.ttft_slo_dispatch_threshold))

    def _tpot_limit_ms(self) -> float:
        settings = self._settings
        return float32(float32(settings.tpot_slo * 1000) * float32(settings.tpot_slo_dispatch_threshold))


def _with_request(instance: InstanceView, tokens: int, prefill: bool, decode: bool) -> InstanceView:
    """The instance with one more request that its engine does not report yet."""
    before = instance.inflight
    inflight = InFlight(
        num_inflight_dispatch_requests=before.num_inflight_dispatch_requests + prefill,
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
