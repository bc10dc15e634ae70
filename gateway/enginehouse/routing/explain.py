"""A routing decision taken apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import ExplainedCandidate, Explanation, Reason, Verdict
from enginehouse.routing.attempts import Attempt
from enginehouse.routing.chooser import Chooser
from enginehouse.routing.refusals import refusal
from enginehouse.routing.sieve import Drop, Sieve
from enginehouse.routing.snapshot import RoutingSnapshot


def explain(
    requirements: Requirements, snapshot: RoutingSnapshot, attempts: Sequence[Attempt], sieve: Sieve, chooser: Chooser
) -> Explanation:
    """What would become of a request with these requirements. The strategy's state stays as it is."""
    attempted: list[str] = []
    candidates: list[ExplainedCandidate] = []
    chosen: Candidate | None = None
    reason: Reason | None = None
    error: RequestError | None = None
    try:
        for attempt in (Attempt(requirements.model, Reason.MATCH), *attempts):
            attempted.append(attempt.model)
            chosen, explained = _explain_model(requirements, snapshot.candidates(attempt.model), sieve, chooser)
            candidates += explained
            if chosen:
                reason = attempt.reason
                break
        else:
            error = refusal(requirements, snapshot, (), attempts, sieve)
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
    """The explanation of a request that was refused before anybody looked for a replica."""
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
    requirements: Requirements, candidates: Sequence[Candidate], sieve: Sieve, chooser: Chooser
) -> tuple[Candidate | None, list[ExplainedCandidate]]:
    drops = sieve.drops(requirements, candidates)
    kept = [candidate for candidate in candidates if candidate.replica not in drops]
    chosen = None
    verdicts: Mapping[str, Verdict] = {}
    if kept:
        chosen, verdicts = chooser.rehearse(requirements, kept)
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
