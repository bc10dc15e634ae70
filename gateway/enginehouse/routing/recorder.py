"""Records a routing decision, to explain it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.domain.explanation import ExplainedCandidate, Explanation, RouteDetails, Verdict
from enginehouse.domain.replica import Candidate, Route, Snapshot
from enginehouse.domain.requirements import Requirements
from enginehouse.routing.decision_plugins import Drop, FilterChain, StrategyRunner

_MOST_TRACED: Final = 10
"""The most candidates that a trace names."""


class Recorder:
    """Notes what one decision of the router, made at ``now``, looks at, with reasons.

    ``runner_of``: of a model's strategy. ``passed_over``: replicas that serve no request alone, and find no other one.
    """

    def __init__(
        self,
        requirements: Requirements,
        filter_chain: FilterChain,
        runner_of: Callable[[str], StrategyRunner],
        now: float,
    ) -> None:
        self.passed_over: tuple[str, ...] = ()
        self._requirements = requirements
        self._filter_chain = filter_chain
        self._runner_of = runner_of
        self._now = now
        self._candidates: dict[str, list[ExplainedCandidate]] = {}

    def keep(
        self, requirements: Requirements, model: str, snapshot: Snapshot, exclude: Collection[str] = ()
    ) -> Sequence[Candidate]:
        """What the filter chain keeps. Notes all candidates when ``model`` is tried first."""
        candidates = [each for each in snapshot.candidates(model) if each.replica not in exclude]
        kept, drops = self._filter_chain.explained(requirements, candidates)
        if model not in self._candidates:
            noted: list[ExplainedCandidate] = []
            self._candidates[model] = noted
            verdicts = self._runner_of(model).verdicts(requirements, kept) if kept else {}
            noted += (
                _explained(each, drops.get(each.replica), verdicts.get(each.replica, Verdict()), self._now)
                for each in candidates
            )
        return kept

    def explanation(self, route: Route | None, error: RequestError | None) -> Explanation:
        """The decision, which chose ``route``, or ended with ``error``."""
        chosen = route.chosen if route is not None else None
        candidates = [each for noted in self._candidates.values() for each in noted]
        return Explanation(
            requested=self._requirements.model,
            resolved=chosen.model if chosen is not None else None,
            reason=route.reason.value if route is not None else None,
            attempted=list(self._candidates),
            requirements=msgspec.to_builtins(self._requirements, enc_hook=repr),
            candidates=[_passed_over(each) if each.replica in self.passed_over else each for each in candidates],
            chosen=chosen.replica if chosen is not None else None,
            waits=(route is not None and route.waits) or msgspec.UNSET,
            prefill=route.prefill.replica if route is not None and route.prefill is not None else msgspec.UNSET,
            prefix=self._runner_of(chosen.model).prefix(self._requirements, chosen) if chosen is not None else None,
            error=error.envelope()["error"] if error is not None else None,
        )


def _passed_over(candidate: ExplainedCandidate) -> ExplainedCandidate:
    why = "its server serves no request alone, and no other one pairs up with it"
    return msgspec.structs.replace(candidate, dropped_by="role", why=why)


def refused_details(explanation: Explanation, strategy: str, began: float) -> RouteDetails:
    """The figures of a decision that began at ``began`` and found no replica."""
    dropped = [each for each in explanation.candidates if each.dropped_by is not None]
    counts = Counter(each.dropped_by or "" for each in dropped)
    reasons = tuple(f"{each.replica}: {each.dropped_by}: {each.why}" for each in dropped[:_MOST_TRACED])
    return RouteDetails(strategy, len(explanation.candidates), dict(counts), began=began, reasons=reasons)


def _explained(candidate: Candidate, drop: Drop | None, verdict: Verdict, now: float) -> ExplainedCandidate:
    load, cached, backlog = candidate.load, verdict.parts.get("cached_tokens"), verdict.parts.get("backlog_s")
    reports = load.figures_at is not None
    return ExplainedCandidate(
        replica=candidate.replica,
        backend=candidate.backend,
        model=candidate.model,
        score=verdict.score,
        parts=verdict.parts,
        dropped_by=drop.filter if drop else None,
        why=drop.why if drop else None,
        slots=load.slots or None,
        free=load.free,
        engine_waiting=load.engine_waiting if reports else None,
        kv_usage=load.kv_usage if reports else None,
        figures_age_ms=None if load.figures_at is None else 1e3 * max(0.0, now - load.figures_at),
        cached_tokens=None if cached is None else int(cached),
        backlog_s=backlog,
        ms_per_token=verdict.parts.get("ms_per_token"),
        ms_per_output_token=verdict.parts.get("ms_per_output_token"),
    )
