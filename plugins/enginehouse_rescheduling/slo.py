"""The strategy ``slo``."""

from __future__ import annotations

from collections.abc import Sequence

from enginehouse import Candidate, Requirements, Role
from enginehouse.errors import RateLimited
from enginehouse_kit.rescheduling import InstanceView
from enginehouse_rescheduling.by_figures import FREE, FULL, Rank, StrategyByFigures
from enginehouse_rescheduling.metrics import (
    Circumstances,
    PromptFigures,
    decode_batch_size,
    float32,
    predicted_tpot,
    predicted_ttft,
)
from enginehouse_rescheduling.policies.instances import least_first, most_first


class Slo(StrategyByFigures):
    """Llumnix's ``slo``: picks the instance with the shortest predicted time to first token.

    Refuses the request with 429 if every instance is at or above ``ttft_slo * ttft_slo_dispatch_threshold``; where
    another instance answers, also if none is below ``tpot_slo * tpot_slo_dispatch_threshold``. Without figures it picks
    by pending requests. With ``adaptive_pd``, instances without answers read prompts and the fullest one that is fast
    enough answers, whatever their roles, and nothing is refused.
    """

    def __init__(self) -> None:
        super().__init__(predicts=True)

    def pick(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Candidate:
        _, known = self._stages(candidates)
        if not self._settings.adaptive_pd or not known:
            return super().pick(requirements, candidates)
        return self._reader(requirements, known)

    def placed(self, requirements: Requirements, chosen: Candidate) -> None:
        if self._settings.adaptive_pd:
            self._place(chosen, requirements, prefill=True, decode=True)
        else:
            super().placed(requirements, chosen)

    def pick_decode(
        self, requirements: Requirements, candidates: Sequence[Candidate], prefill: Candidate
    ) -> Candidate | None:
        if not self._settings.adaptive_pd or prefill.backend not in self._instances:
            return super().pick_decode(requirements, candidates, prefill)
        _, known = self._stages(candidates)
        return self._answerer(known) or prefill

    def _stages(self, candidates: Sequence[Candidate]) -> tuple[Sequence[Candidate], Sequence[Candidate]]:
        if not self._settings.adaptive_pd:
            return super()._stages(candidates)
        known = [each for each in candidates if each.backend in self._instances]
        return known or candidates, known

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
        best = (most_first(reserved or fast, times) or least_first(allowed, times))[0]
        return next(each for each in known if each.backend == best.id)

    def _rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        prompt = PromptFigures(tokens=requirements.estimated_tokens)
        time = float32(predicted_ttft(instance, Circumstances(self._now_ms, self._latency, prompt)))
        return Rank(FREE if time < self._ttft_limit_ms() else FULL, load=time)

    def _decode_rank(self, instance: InstanceView, requirements: Requirements) -> Rank:
        prompt = PromptFigures(tokens=requirements.estimated_tokens)
        time = float32(predicted_tpot(instance, Circumstances(self._now_ms, self._latency, prompt)))
        return Rank(FREE if time < self._tpot_limit_ms() else FULL, load=time)

    def _check(self, best: Rank, *, decodes: bool) -> None:
        if best.full == FULL:
            limit = self._tpot_limit_ms() if decodes else self._ttft_limit_ms()
            what = "make a token" if decodes else "begin an answer"
            raise RateLimited(f"No instance is expected to {what} within {limit / 1000:g} s; try again later")

    def _ttft_limit_ms(self) -> float:
        settings = self._settings
        return float32(float32(settings.ttft_slo * 1000) * float32(settings.ttft_slo_dispatch_threshold))

    def _tpot_limit_ms(self) -> float:
        settings = self._settings
        return float32(float32(settings.tpot_slo * 1000) * float32(settings.tpot_slo_dispatch_threshold))
