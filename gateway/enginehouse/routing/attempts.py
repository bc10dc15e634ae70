"""Which models a request may be served by, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from enginehouse.domain.route import Reason


class Attempt(NamedTuple):
    """A model to try, and what a route to it is called."""

    model: str
    reason: Reason


def attempts_by_name(
    aliases: Mapping[str, str], fallbacks: Mapping[str, Sequence[str]]
) -> dict[str, tuple[Attempt, ...]]:
    """What to try when a requested name cannot serve by itself, for each name that has an alias or a fallback chain.

    The alias comes first, then the fallbacks of the aliased model, then those of the name; each model once. Aliases
    and fallbacks of these models are not followed.
    """
    return {name: _attempts(name, aliases.get(name), fallbacks) for name in aliases.keys() | fallbacks.keys()}


def _attempts(name: str, target: str | None, fallbacks: Mapping[str, Sequence[str]]) -> tuple[Attempt, ...]:
    reasons = {name: Reason.MATCH}
    if target is not None:
        reasons.setdefault(target, Reason.ALIAS)
        for model in fallbacks.get(target, ()):
            reasons.setdefault(model, Reason.FALLBACK)
    for model in fallbacks.get(name, ()):
        reasons.setdefault(model, Reason.FALLBACK)
    del reasons[name]
    return tuple(Attempt(model, reason) for model, reason in reasons.items())
