"""Explains routing decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.domain.explanation import ExplainedCandidate, Explanation, RouteDetails, Verdict
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Reason
from enginehouse.routing.filter_chain import Drop, FilterChain
from enginehouse.routing.models_to_try import ModelToTry
from enginehouse.routing.refusals import refusal, unpaired
from enginehouse.routing.snapshot import RoutingSnapshot
from enginehouse.routing.strategy_runner import StrategyRunner, must_wait

_MOST_TRACED: Final = 10
"""The most candidates that a trace names."""


class HandOverRules(NamedTuple):
    """Which engines hand prompts over or take them, and which serve a request alone."""

    can_hand_over: Callable[[Candidate], bool]
    serves_alone: Callable[[Candidate], bool]


NO_HAND_OVER = HandOverRules(lambda _: False, lambda _: True)


class DryRun:
    """One decision as the router would make it at ``now``, with reasons. No strategy's state changes.

    ``runner_of``: of a model's strategy.
    """

    def __init__(
        self,
        requirements: Requirements,
        snapshot: RoutingSnapshot,
        filter_chain: FilterChain,
        runner_of: Callable[[str], StrategyRunner],
        hand_over_rules: HandOverRules,
        now: float,
    ) -> None:
        self._requirements = requirements
        self._snapshot = snapshot
        self._filter_chain = filter_chain
        self._runner_of = runner_of
        self._rules = hand_over_rules
        self._now = now
        self._attempted: list[str] = []
        self._candidates: list[ExplainedCandidate] = []
        self._alone: list[Candidate] = []  # those that find no other half
        self._reason: Reason | None = None
        self._first: Candidate | None = None
        self._decode: Candidate | None = None
        self._waits = False

    def explain(self, models: Sequence[ModelToTry]) -> Explanation:
        """Try the ``models``. An error is part of the explanation."""
        error = None
        try:
            for model, reason in models:
                if self._choose(model, self._kept(model)):
                    self._reason = reason
                    break
            else:
                error = self._refusal(models)
        except RequestError as raised:
            error = raised
        return self._explanation(error)

    def _kept(self, model: str) -> Sequence[Candidate]:
        """Explain the candidates of ``model``; returns those that no filter drops."""
        self._attempted.append(model)
        candidates = self._snapshot.candidates(model)
        drops = self._filter_chain.drops(self._requirements, candidates)
        kept = [candidate for candidate in candidates if candidate.replica not in drops]
        verdicts = self._runner_of(model).verdicts(self._requirements, kept) if kept else {}
        self._candidates += (
            _explained(each, drops.get(each.replica), verdicts.get(each.replica, Verdict()), self._now)
            for each in candidates
        )
        return kept

    def _choose(self, model: str, kept: Sequence[Candidate]) -> bool:
        """Let the strategy pick; whether one of ``kept`` can serve, alone or with another one."""
        runner = self._runner_of(model)
        while kept:
            first, decode = runner.rehearse(self._requirements, kept, self._rules.can_hand_over)
            if decode is not None or not runner.hands_over or self._rules.serves_alone(first):
                self._first, self._decode = first, decode
                self._waits = runner.binds_late and must_wait(first, kept)
                return True
            self._alone.append(first)
            kept = [each for each in kept if each is not first]
        return False

    def _refusal(self, models: Sequence[ModelToTry]) -> RequestError:
        if self._alone and not any(map(self._rules.can_hand_over, self._alone)):
            return unpaired(self._requirements)
        exclude = [each.replica for each in self._alone]
        tried = [each.model for each in models if each.reason is Reason.MATCH]
        others = [each for each in models if each.reason is not Reason.MATCH]
        return refusal(self._requirements, self._snapshot, exclude, tried, others, self._filter_chain)

    def _explanation(self, error: RequestError | None) -> Explanation:
        chosen = self._decode or self._first
        alone = {each.replica for each in self._alone}
        return Explanation(
            requested=self._requirements.model,
            resolved=chosen.model if chosen else None,
            reason=self._reason.value if self._reason else None,
            attempted=self._attempted,
            requirements=msgspec.to_builtins(self._requirements, enc_hook=repr),
            candidates=[_passed_over(each) if each.replica in alone else each for each in self._candidates],
            chosen=chosen.replica if chosen else None,
            waits=self._waits or msgspec.UNSET,
            prefill=self._first.replica if self._first and self._decode else msgspec.UNSET,
            error=error.envelope()["error"] if error else None,
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


def explain_unread(error: RequestError) -> Explanation:
    """The explanation of a request that was refused before routing began."""
    return Explanation(
        requested="",
        resolved=None,
        reason=None,
        attempted=[],
        requirements={},
        candidates=[],
        chosen=None,
        error=error.envelope()["error"],
    )


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
    )
