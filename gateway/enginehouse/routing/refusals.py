"""The error for a request that no replica can serve. It is computed only after routing has failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from enginehouse.domain.errors import (
    CapabilityMismatch,
    FallbackExhausted,
    ModelNotFound,
    NoHealthyBackend,
    RequestError,
    ZoneUnavailable,
)
from enginehouse.domain.replica import Reason, Snapshot
from enginehouse.domain.requirements import Requirements
from enginehouse.routing.decision_plugins import FilterChain
from enginehouse.routing.models_to_try import ModelToTry


def refusal(
    requirements: Requirements,
    snapshot: Snapshot,
    exclude: Collection[str],
    tried: Sequence[str],
    others: Sequence[ModelToTry],
    filter_chain: FilterChain,
) -> RequestError:
    """The error that says why neither the models ``tried`` nor any of ``others`` can serve."""
    errors = {
        model: _refusal_of(model, requirements, snapshot, exclude, filter_chain)
        for model in (*tried, *(other.model for other in others))
    }
    if any(other.reason is Reason.FALLBACK for other in others) and not _left_no_zone(errors):
        return _spent(errors)
    known = [error for error in reversed(errors.values()) if not isinstance(error, ModelNotFound)]
    if known:  # prefer a model that may serve later, and of these the alias's target
        return next((error for error in known if not isinstance(error, CapabilityMismatch)), known[0])
    return ModelNotFound(others[0].model, alias_of=requirements.model) if others else errors[requirements.model]


def _left_no_zone(errors: Mapping[str, RequestError]) -> bool:
    """Whether models are there, but none of them in the zones of the request."""
    known = [error for error in errors.values() if not isinstance(error, ModelNotFound)]
    return bool(known) and all(isinstance(error, ZoneUnavailable) for error in known)


def unknown_model(model: str, unlisted: Sequence[str]) -> RequestError:
    """The error for a model that no backend lists: 404, or 503 while one of the backends ``unlisted`` may have it."""
    return NoHealthyBackend(model, unlisted=unlisted) if unlisted else ModelNotFound(model)


def _spent(errors: Mapping[str, RequestError]) -> RequestError:
    """The error for a chain of fallbacks: 503, or 400 if its engines lack what the request needs."""
    attempted, reasons = list(errors), {model: error.code for model, error in errors.items()}
    mismatches = [error for error in errors.values() if isinstance(error, CapabilityMismatch)]
    if not mismatches or not all(isinstance(error, (CapabilityMismatch, ModelNotFound)) for error in errors.values()):
        return FallbackExhausted(attempted, reasons)
    error = mismatches[0]
    error.details = {**error.details, "attempted": attempted, "reasons": reasons}
    return error


def _refusal_of(
    model: str,
    requirements: Requirements,
    snapshot: Snapshot,
    exclude: Collection[str],
    filter_chain: FilterChain,
) -> RequestError:
    known = snapshot.candidates(model)
    if not known:
        return unknown_model(model, snapshot.unlisted)
    left = [candidate for candidate in known if candidate.replica not in exclude]
    error = filter_chain.refusal(model, requirements, left) if left else NoHealthyBackend(model)
    if requirements.zones and isinstance(error, NoHealthyBackend):
        return ZoneUnavailable(model, requirements.zones)
    return error
