"""Privacy zones: requests that may only go to the backends of a zone, whatever happens to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from enginehouse.config.schema import ZoneSettings
from enginehouse.domain.errors import NoHealthyBackend, RequestError, ZoneUnavailable
from enginehouse.domain.names import has_header, matches_any
from enginehouse.domain.replica import Candidate
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.filters import Filter

_MOST_REMEMBERED: Final = 4096


class Zones:
    """Says which zones a request must not leave. ``settings``: the zones by name."""

    def __init__(self, settings: Mapping[str, ZoneSettings]) -> None:
        self._zones = settings
        self.of_model = lru_cache(_MOST_REMEMBERED)(self._of_model)

    def of(self, model: str, caller: str | None, headers: Headers) -> tuple[str, ...]:
        """The zones of a request for ``model`` with the key ``caller``."""
        found = dict.fromkeys(self.of_model(model))
        found.update(dict.fromkeys(name for name, zone in self._zones.items() if _matches(zone, caller, headers)))
        return tuple(found)

    def _of_model(self, model: str) -> tuple[str, ...]:
        """The zones whose models include ``model``."""
        return tuple(name for name, zone in self._zones.items() if matches_any(zone.models, model))


class ZoneFilter(Filter):
    """Keeps the candidates in all zones of the request, and in those of their own model."""

    def __init__(self, zones: Zones) -> None:
        self._zones = zones

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
        needed = (*requirements.zones, *self._zones.of_model(candidate.model))
        return (zone for zone in needed if zone != candidate.zone)


class TierFilter(Filter):
    """Keeps the candidates whose tier is at least that of the model that the client named."""

    def __init__(self, least: Mapping[str, int]) -> None:
        self._least = sorted(least.items(), key=lambda each: -len(each[0].replace("*", "")))
        self._of_model = lru_cache(_MOST_REMEMBERED)(self._least_of)

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        least = self._of_model(requirements.model)
        return [each for each in candidates if each.tier >= least] if least else candidates

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return f"its tier is {candidate.tier}, and the model needs {self._of_model(requirements.model)}"

    def refusal(self, requirements: Requirements, candidates: Sequence[Candidate]) -> RequestError | None:
        return NoHealthyBackend(candidates[0].model, least_tier=self._of_model(requirements.model))

    def _least_of(self, model: str) -> int:
        """Of several patterns that match, the longest text wins."""
        return next((tier for pattern, tier in self._least if fnmatchcase(model, pattern)), 0)


def _matches(zone: ZoneSettings, caller: str | None, headers: Headers) -> bool:
    return (caller is not None and matches_any(zone.keys, caller)) or any(
        has_header(headers, wanted) for wanted in zone.headers
    )
