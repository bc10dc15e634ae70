"""The error for a request that nothing can serve, worked out when there is one and not before."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from enginehouse.domain.errors import FallbackExhausted, ModelNotFound, NoHealthyBackend, RequestError
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Reason
from enginehouse.routing.attempts import Attempt
from enginehouse.routing.sieve import Sieve
from enginehouse.routing.snapshot import RoutingSnapshot


def refusal(
    requirements: Requirements,
    snapshot: RoutingSnapshot,
    exclude: Collection[str],
    attempts: Sequence[Attempt],
    sieve: Sieve,
) -> RequestError:
    """Why neither the requested model nor any of ``attempts`` can serve the request."""
    requested = requirements.model
    errors = {
        model: _refusal_of(model, requirements, snapshot, exclude, sieve)
        for model in (requested, *(attempt.model for attempt in attempts))
    }
    if any(attempt.reason is Reason.FALLBACK for attempt in attempts):
        return FallbackExhausted(list(errors), {model: error.code for model, error in errors.items()})
    for error in reversed(errors.values()):  # of a known model, best of what the alias stands for
        if not isinstance(error, ModelNotFound):
            return error
    return ModelNotFound(attempts[0].model, alias_of=requested) if attempts else errors[requested]


def _refusal_of(
    model: str, requirements: Requirements, snapshot: RoutingSnapshot, exclude: Collection[str], sieve: Sieve
) -> RequestError:
    known = snapshot.candidates(model)
    if not known:
        return ModelNotFound(model)
    left = [candidate for candidate in known if candidate.replica not in exclude]
    return sieve.refusal(model, requirements, left) if left else NoHealthyBackend(model)
