"""Explains routing decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import ExplainedCandidate, Explanation, Reason, Verdict
from enginehouse.routing.filter_chain import Drop, FilterChain
from enginehouse.routing.models_to_try import ModelToTry
from enginehouse.routing.refusals import refusal
from enginehouse.routing.snapshot import RoutingSnapshot
from enginehouse.routing.strategy_runner import StrategyRunner


def explain(
    requirements: Requirements,
    snapshot: RoutingSnapshot,
    others: Sequence[ModelToTry],
    filter_chain: FilterChain,
    strategy_runner: StrategyRunner,
) -> Explanation:
    """Decide as the router would, with reasons. The strategy's state does not change."""
    attempted: list[str] = []
    candidates: list[ExplainedCandidate] = []
    chosen: Candidate | None = None
    reason: Reason | None = None
    error: RequestError | None = None
    try:
        for model, match in (ModelToTry(requirements.model, Reason.MATCH), *others):
            attempted.append(model)
            chosen, explained = _explain_model(requirements, snapshot.candidates(model), filter_chain, strategy_runner)
            candidates += explained
            if chosen:
                reason = match
                break
        else:
            error = refusal(requirements, snapshot, (), others, filter_chain)
    except RequestError as raised:
        error = raised
    return Explanation(
        requested=requirements.model,
        resolved=chosen.model if chosen else None,
        reason=reason.value if reason else None,
        attempted=attempted,
        requirements=msgspec.to_builtins(requirements, enc_hook=repr),
        candidates=candidates,
        chosen=chosen.replica if chosen else None,
        error=error.envelope()["error"] if error else None,
    )


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


def _explain_model(
    requirements: Requirements,
    candidates: Sequence[Candidate],
    filter_chain: FilterChain,
    strategy_runner: StrategyRunner,
) -> tuple[Candidate | None, list[ExplainedCandidate]]:
    drops = filter_chain.drops(requirements, candidates)
    kept = [candidate for candidate in candidates if candidate.replica not in drops]
    chosen = None
    verdicts: Mapping[str, Verdict] = {}
    if kept:
        chosen, verdicts = strategy_runner.rehearse(requirements, kept)
    return chosen, [
        _explained(candidate, drops.get(candidate.replica), verdicts.get(candidate.replica, Verdict()))
        for candidate in candidates
    ]


def _explained(candidate: Candidate, drop: Drop | None, verdict: Verdict) -> ExplainedCandidate:
    return ExplainedCandidate(
        replica=candidate.replica,
        backend=candidate.backend,
        model=candidate.model,
        score=verdict.score,
        parts=verdict.parts,
        dropped_by=drop.filter if drop else None,
        why=drop.why if drop else None,
    )
