"""Aliases and fallbacks: the models that may serve a request, in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from enginehouse.config.routing import Alias, Aliases
from enginehouse.domain.replica import Candidate, Health, Reason, ReplicaState, Snapshot


class ModelToTry(NamedTuple):
    """A model that may serve the request, and the reason that a route to it gets."""

    model: str
    reason: Reason


class ModelsToTry:
    """For each name with an alias or fallbacks: the other models to try, each once.

    The alias's targets come first, then their fallbacks, then those of the name. Aliases and fallbacks of the models
    found are not followed.
    """

    def __init__(self, aliases: Aliases, fallbacks: Mapping[str, Sequence[str]]) -> None:
        self._aliases = aliases
        self._fallbacks = fallbacks
        self._fixed = {name: self._others(name, aliases.targets(name)) for name in aliases.named.keys() | fallbacks}
        for name, alias in aliases.named.items():
            if alias.weights or alias.prefer != "order":
                del self._fixed[name]
        self._credits: dict[Alias, list[float]] = {}

    def of(self, name: str, snapshot: Snapshot) -> Sequence[ModelToTry]:
        """The models to try for ``name``."""
        fixed = self._fixed.get(name)
        if fixed is not None:
            return fixed
        alias = self._aliases.find(name)
        if alias is None:
            return self._others(name, ()) if name in self._fallbacks else ()
        return self._others(name, self._in_order(alias, snapshot))

    def count_turn(self, name: str, target: str) -> None:
        """Count a request for ``name`` as the turn of ``target``, if that has a weight."""
        alias = self._aliases.find(name)
        if alias is not None and alias.weights and target in alias.targets:
            credits = self._next_credits(alias)
            credits[alias.targets.index(target)] -= sum(alias.weights)
            self._credits[alias] = credits

    def knows(self, name: str) -> bool:
        """Whether ``name`` has an alias or fallbacks."""
        return name in self._fallbacks or self._aliases.find(name) is not None

    def names(self, name: str) -> bool:
        """Whether ``name`` itself has an alias or fallbacks, and is not only one of many that a pattern matches."""
        return name in self._fallbacks or name in self._aliases.named

    def _in_order(self, alias: Alias, snapshot: Snapshot) -> Sequence[str]:
        """The targets of ``alias``, the one to be tried first in front."""
        if alias.prefer != "order":
            has = _loaded if alias.prefer == "loaded" else _free
            return sorted(alias.targets, key=lambda name: not any(map(has, snapshot.candidates(name))))
        if alias.weights:
            credits = self._next_credits(alias)  # the turn is that of the target most behind its share
            first = alias.targets[credits.index(max(credits))]
            return (first, *(name for name in alias.targets if name != first))
        return alias.targets

    def _next_credits(self, alias: Alias) -> list[float]:
        """How far each target is behind its share at the next turn, so that shares hold in every short while."""
        credits = self._credits.get(alias) or [0.0] * len(alias.weights)
        return [credit + weight for credit, weight in zip(credits, alias.weights, strict=True)]

    def _others(self, name: str, targets: Sequence[str]) -> tuple[ModelToTry, ...]:
        reasons = {name: Reason.MATCH}
        for target in targets:
            reasons.setdefault(target, Reason.ALIAS)
        for source in (*targets, name):
            for model in self._fallbacks.get(source, ()):
                reasons.setdefault(model, Reason.FALLBACK)
        del reasons[name]
        return tuple(ModelToTry(model, reason) for model, reason in reasons.items())


def _loaded(candidate: Candidate) -> bool:
    return candidate.state is ReplicaState.READY and candidate.health is Health.HEALTHY


def _free(candidate: Candidate) -> bool:
    """Whether it is loaded and, as far as its slots are known, has a free one."""
    return _loaded(candidate) and candidate.load.free != 0
