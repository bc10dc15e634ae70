"""The configured filters, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from enginehouse.domain.errors import CapabilityMismatch, NoHealthyBackend, RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.filters import Filter
from enginehouse.routing.failures import failures_of, plugin_failed

_LISTED_FIRST = ("vision", "tools", "json_mode", "context_length")


class Drop(NamedTuple):
    """Which filter dropped a candidate, and why."""

    filter: str
    why: str


class Sieve:
    """Runs the filters. A filter that raises anything but a ``RequestError`` becomes a ``PluginFailed``."""

    def __init__(self, filters: Sequence[tuple[str, Filter]]) -> None:
        self._filters = tuple(filters)
        self._steps = tuple((name, filter.keep) for name, filter in filters)

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        """The candidates that every filter keeps."""
        for name, keep in self._steps:
            if not candidates:
                break
            try:
                candidates = keep(requirements, candidates)
            except RequestError:
                raise
            except Exception as error:
                raise plugin_failed("filter", name, error) from error
        return candidates

    def drops(self, requirements: Requirements, candidates: Sequence[Candidate]) -> dict[str, Drop]:
        """Who dropped each candidate that is not kept, by replica."""
        drops = {}
        for position, before, kept in self._stages(requirements, candidates):
            name, filter = self._filters[position]
            replicas = {candidate.replica for candidate in kept}
            with failures_of("filter", name):
                for candidate in before:
                    if candidate.replica not in replicas:
                        drops[candidate.replica] = Drop(name, filter.why(requirements, candidate))
        return drops

    def refusal(self, model: str, requirements: Requirements, candidates: Sequence[Candidate]) -> RequestError:
        """The error for ``candidates`` of ``model``, none of which is kept.

        If a filter left nothing for want of a capability, all that is missing is listed: what the candidates that came
        as far as this filter lack for it and for those after it.
        """
        for position, before, kept in self._stages(requirements, candidates):
            if not kept:
                missing = self._missing(position, requirements, before)
                return CapabilityMismatch(model, missing) if missing else NoHealthyBackend(model)
        return NoHealthyBackend(model)

    def _stages(
        self, requirements: Requirements, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[int, Sequence[Candidate], Sequence[Candidate]]]:
        """The position of each filter, what it was given and what it kept, until nothing is left."""
        for position, (name, filter) in enumerate(self._filters):
            if not candidates:
                return
            with failures_of("filter", name):
                kept = filter.keep(requirements, candidates)
            yield position, candidates, kept
            candidates = kept

    def _missing(self, position: int, requirements: Requirements, candidates: Sequence[Candidate]) -> list[str]:
        found: dict[str, None] = {}
        for name, filter in self._filters[position:]:
            with failures_of("filter", name):
                found |= dict.fromkeys(
                    what for candidate in candidates for what in filter.missing(requirements, candidate)
                )
            if not found:
                return []
        return [what for what in _LISTED_FIRST if what in found] + [what for what in found if what not in _LISTED_FIRST]
