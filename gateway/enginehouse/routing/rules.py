"""The rules of ``[[routing.rules]]``: where requests with a header, or of a key, go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from enginehouse.config.routing import RuleSettings
from enginehouse.domain.explanation import RuleEffects
from enginehouse.domain.names import has_header, matches_any
from enginehouse.domain.replica import Candidate
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.filters import Filter

_ROUNDING: Final = 1e-9


class Rules:
    """Finds the rule of a request: the first one that matches and whose turn it is.

    A rule with a ``weight`` below 1 takes that share of the requests that it matches, evenly. The others go on to the
    next rules, and avoid its backends.
    """

    def __init__(self, rules: Sequence[RuleSettings]) -> None:
        self._rules = rules
        self._shares = [0.0] * len(rules)

    def of(self, model: str, caller: str | None, headers: Headers, *, rehearsal: bool = False) -> RuleEffects | None:
        """What the rules say of a request for ``model``. A ``rehearsal`` is nobody's turn."""
        avoided: list[str] = []
        for place, rule in enumerate(self._rules):
            if not _matches(rule, caller, headers):
                continue
            if self._takes(place, rule.weight, rehearsal):
                certain = rule.weight >= 1
                return RuleEffects(
                    rule=place,
                    model=rule.model if rule.model != model else "",
                    backends=tuple(rule.backends) if certain else (),
                    preferred=() if certain else tuple(rule.backends),
                    avoided=tuple(avoided),
                    strategy=rule.strategy,
                    spare=model if rule.model and not certain else "",
                )
            avoided += rule.backends
        return RuleEffects(avoided=tuple(avoided)) if avoided else None

    def _takes(self, place: int, weight: float, rehearsal: bool) -> bool:
        """Whether the rule at ``place`` takes the request, so that its share holds in every short while."""
        if weight >= 1:
            return True
        share = self._shares[place] + weight
        takes = share >= 1 - _ROUNDING
        if not rehearsal:
            self._shares[place] = share - 1 if takes else share
        return takes


class RuleFilter(Filter):
    """Keeps the candidates at the backends that a rule names for the request."""

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        effects = requirements.rule_effects
        if effects is None or not effects.backends:
            return candidates
        return [each for each in candidates if matches_any(effects.backends, each.backend)]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        assert requirements.rule_effects is not None
        named = ", ".join(requirements.rule_effects.backends)
        return f"routing.rules[{requirements.rule_effects.rule}] sends the request to: {named}"


class CanaryFilter(Filter):
    """Prefers the backends of a rule for the share of requests that it takes, and others for the rest."""

    prefers = True

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        effects = requirements.rule_effects
        if effects is None or not (effects.preferred or effects.avoided):
            return candidates
        return [each for each in candidates if not _unwanted(effects, each)]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return "another backend gets this share of the requests (routing.rules)"


def _unwanted(effects: RuleEffects, candidate: Candidate) -> bool:
    if effects.preferred:
        return not matches_any(effects.preferred, candidate.backend)
    return matches_any(effects.avoided, candidate.backend)


def _matches(rule: RuleSettings, caller: str | None, headers: Headers) -> bool:
    if rule.key and (caller is None or not matches_any([rule.key], caller)):
        return False
    return not rule.header or has_header(headers, rule.header)
