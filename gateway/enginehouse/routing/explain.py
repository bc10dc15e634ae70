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


class _Steps:
    """The steps of one decision up to its end or its error. ``passed_over``: those that find no other half."""

    def __init__(self) -> None:
        self.attempted: list[str] = []
        self.candidates: list[ExplainedCandidate] = []
        self.reason: Reason | None = None
        self.first: Candidate | None = None
        self.decode: Candidate | None = None
        self.waits = False
        self.passed_over: list[Candidate] = []


def explain(
    requirements: Requirements,
    snapshot: RoutingSnapshot,
    models: Sequence[ModelToTry],
    filter_chain: FilterChain,
    runner_of: Callable[[str], StrategyRunner],
    hand_over_rules: HandOverRules,
    now: float,
) -> Explanation:
    """Decide as the router would at ``now``, with reasons. No strategy's state changes. ``models``: those to try."""
    steps, error = _Steps(), None
    try:
        for model, reason in models:
            strategy_runner = runner_of(model)
            kept = _explain_model(steps, model, requirements, snapshot, filter_chain, strategy_runner, now)
            if _choose(steps, kept, requirements, strategy_runner, hand_over_rules):
                steps.reason = reason
                break
        else:
            passed_over = [each.replica for each in steps.passed_over]
            tried = [each.model for each in models if each.reason is Reason.MATCH]
            others = [each for each in models if each.reason is not Reason.MATCH]
            error = refusal(requirements, snapshot, passed_over, tried, others, filter_chain)
            if steps.passed_over and not any(map(hand_over_rules.can_hand_over, steps.passed_over)):
                error = unpaired(requirements)
    except RequestError as raised:
        error = raised
    return _explanation(requirements, steps, error)


def _choose(
    steps: _Steps,
    kept: Sequence[Candidate],
    requirements: Requirements,
    strategy_runner: StrategyRunner,
    hand_over_rules: HandOverRules,
) -> bool:
    """Let the strategy pick; whether one of ``kept`` can serve, alone or with another one."""
    while kept:
        first, decode = strategy_runner.rehearse(requirements, kept, hand_over_rules.can_hand_over)
        if decode is not None or not strategy_runner.hands_over or hand_over_rules.serves_alone(first):
            steps.first, steps.decode = first, decode
            steps.waits = strategy_runner.binds_late and must_wait(first, kept)
            return True
        steps.passed_over.append(first)
        kept = [each for each in kept if each is not first]
    return False


def _explain_model(
    steps: _Steps,
    model: str,
    requirements: Requirements,
    snapshot: RoutingSnapshot,
    filter_chain: FilterChain,
    strategy_runner: StrategyRunner,
    now: float,
) -> Sequence[Candidate]:
    """Explain the candidates of ``model``; returns those that no filter drops."""
    steps.attempted.append(model)
    candidates = snapshot.candidates(model)
    drops = filter_chain.drops(requirements, candidates)
    kept = [candidate for candidate in candidates if candidate.replica not in drops]
    verdicts = strategy_runner.verdicts(requirements, kept) if kept else {}
    steps.candidates += (
        _explained(each, drops.get(each.replica), verdicts.get(each.replica, Verdict()), now) for each in candidates
    )
    return kept


def _explanation(requirements: Requirements, steps: _Steps, error: RequestError | None) -> Explanation:
    chosen = steps.decode or steps.first
    alone = {each.replica for each in steps.passed_over}
    return Explanation(
        requested=requirements.model,
        resolved=chosen.model if chosen else None,
        reason=steps.reason.value if steps.reason else None,
        attempted=steps.attempted,
        requirements=msgspec.to_builtins(requirements, enc_hook=repr),
        candidates=[_passed_over(each) if each.replica in alone else each for each in steps.candidates],
        chosen=chosen.replica if chosen else None,
        waits=steps.waits or msgspec.UNSET,
        prefill=steps.first.replica if steps.first and steps.decode else msgspec.UNSET,
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
