"""Aliases and fallbacks: the models that may serve a request, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from enginehouse.domain.route import Reason


class ModelToTry(NamedTuple):
    """A model that may serve the request, and the reason that a route to it gets."""

    model: str
    reason: Reason


def models_to_try(
    aliases: Mapping[str, str], fallbacks: Mapping[str, Sequence[str]]
) -> dict[str, tuple[ModelToTry, ...]]:
    """For each name with an alias or fallbacks: the other models to try, each once.

    The alias's target comes first, then the target's fallbacks, then those of the name. Aliases and fallbacks of the
    models found are not followed.
    """
    return {name: _others(name, aliases.get(name), fallbacks) for name in aliases.keys() | fallbacks.keys()}


def _others(name: str, target: str | None, fallbacks: Mapping[str, Sequence[str]]) -> tuple[ModelToTry, ...]:
    reasons = {name: Reason.MATCH}
    if target is not None:
        reasons.setdefault(target, Reason.ALIAS)
        for model in fallbacks.get(target, ()):
            reasons.setdefault(model, Reason.FALLBACK)
    for model in fallbacks.get(name, ()):
        reasons.setdefault(model, Reason.FALLBACK)
    del reasons[name]
    return tuple(ModelToTry(model, reason) for model, reason in reasons.items())
