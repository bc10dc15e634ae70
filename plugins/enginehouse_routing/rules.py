"""Where the configuration says that requests may go: rules, privacy zones and tiers.

Rules, of ``[[routing.rules]]``, say it for requests with a header, or of a key. Requests in a zone may only go to its
backends, whatever happens to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import ClassVar, Final

from msgspec.structs import replace

from enginehouse import Candidate, Filter, Headers, RequestError, Requirements
from enginehouse.errors import NoHealthyBackend, ZoneUnavailable
from enginehouse.requests import has_header, matches_any
from enginehouse.routing_facts import RuleEffects
from enginehouse.settings import RuleSettings, ZoneSettings
from enginehouse_routing.structs import RuleConfig, TierConfig, ZoneConfig

_ROUNDING: Final = 1e-9
_MOST_REMEMBERED: Final = 4096


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
            if not _rule_matches(rule, caller, headers):
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
    """Notes what the rules say of a request, and keeps the candidates at the backends that they name for it."""

    Config: ClassVar[type[RuleConfig]] = RuleConfig

    def __init__(self, config: RuleConfig) -> None:
        self._rules = Rules(config.rules)

    def mark(self, requirements: Requirements, headers: Headers, rehearsal: bool) -> None:
        requirements.rule_effects = self._rules.of(
            requirements.model, requirements.caller, headers, rehearsal=rehearsal
        )

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


def _rule_matches(rule: RuleSettings, caller: str | None, headers: Headers) -> bool:
    if rule.key and (caller is None or not matches_any([rule.key], caller)):
        return False
    return not rule.header or has_header(headers, rule.header)


class ZoneFilter(Filter):
    """Notes the zones that a request must not leave, and keeps the candidates in all of them and of their own model."""

    Config: ClassVar[type[ZoneConfig]] = ZoneConfig

    def __init__(self, config: ZoneConfig) -> None:
        self._zones = config.zones
        self._of_model = lru_cache(_MOST_REMEMBERED)(self._zones_of)

    def mark(self, requirements: Requirements, headers: Headers, rehearsal: bool) -> None:
        found = dict.fromkeys(self._of_model(requirements.model))
        caller = requirements.caller
        found.update(dict.fromkeys(name for name, zone in self._zones.items() if _zone_matches(zone, caller, headers)))
        requirements.zones = tuple(found)

    def _zones_of(self, model: str) -> tuple[str, ...]:
        """The zones whose models include ``model``."""
        return tuple(name for name, zone in self._zones.items() if matches_any(zone.models, model))

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [each for each in candidates if not any(self._outside(requirements, each))]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        left = next(self._outside(requirements, candidate))
        where = f"in zone '{candidate.zone}'" if candidate.zone else "in no zone"
        return f"the request must not leave zone '{left}', and the backend is {where}"

    def refusal(self, requirements: Requirements, candidates: Sequence[Candidate]) -> RequestError | None:
        zones = dict.fromkeys(zone for each in candidates for zone in self._outside(requirements, each))
        return ZoneUnavailable(candidates[0].model, list(zones))

    def _outside(self, requirements: Requirements, candidate: Candidate) -> Iterator[str]:
        """The zones that the request would leave with ``candidate``."""
        needed = (*requirements.zones, *self._of_model(candidate.model))
        return (zone for zone in needed if zone != candidate.zone)


class TierFilter(Filter):
    """Keeps the candidates whose tier is at least that of the model that the client named.

    Of several patterns that match its name, the longest text wins.
    """

    Config: ClassVar[type[TierConfig]] = TierConfig

    def __init__(self, config: TierConfig) -> None:
        self._least = sorted(config.least.items(), key=lambda each: -len(each[0].replace("*", "")))
        self._of_model = lru_cache(_MOST_REMEMBERED)(self._tier_of)

    def mark(self, requirements: Requirements, headers: Headers, rehearsal: bool) -> None:
        if least := self._of_model(requirements.model):
            requirements.rule_effects = replace(requirements.rule_effects or RuleEffects(), least_tier=least)

    def _tier_of(self, model: str) -> int:
        return next((tier for pattern, tier in self._least if fnmatchcase(model, pattern)), 0)

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        least = _least_tier(requirements)
        return [each for each in candidates if each.tier >= least] if least else candidates

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return f"its tier is {candidate.tier}, and the model needs {_least_tier(requirements)}"

    def refusal(self, requirements: Requirements, candidates: Sequence[Candidate]) -> RequestError | None:
        return NoHealthyBackend(candidates[0].model, least_tier=_least_tier(requirements))


def _least_tier(requirements: Requirements) -> int:
    effects = requirements.rule_effects
    return effects.least_tier if effects is not None else 0


def _zone_matches(zone: ZoneSettings, caller: str | None, headers: Headers) -> bool:
    return (caller is not None and matches_any(zone.keys, caller)) or any(
        has_header(headers, wanted) for wanted in zone.headers
    )
