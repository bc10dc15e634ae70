"""Runs the configured filters in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from enginehouse.domain.errors import CapabilityMismatch, ContextLengthExceeded, NoHealthyBackend, RequestError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.replica import Candidate, Snapshot
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.filters import Filter
from enginehouse.routing.guards import GuardedFilter
from enginehouse.telemetry.plugin_failures import plugin_errors, plugin_failed
from enginehouse.telemetry.plugin_times import SampledCall

_LISTED_FIRST = ("vision", "tools", "json_mode", "context_length")


class Drop(NamedTuple):
    """The filter that dropped a candidate, and its reason."""

    filter: str
    why: str


class FilterChain:
    """The filters in order, those that only prefer some candidates last: they never drop all that are left.

    An exception of a filter becomes ``PluginFailed``, except for a ``RequestError``.

    ``dropped`` counts the candidates that each filter dropped, and ``noted`` does so since it was last replaced.
    """

    def __init__(self, filters: Sequence[tuple[PluginId, Filter]]) -> None:
        ordered = sorted(filters, key=lambda pair: pair[1].prefers)
        self._filters = tuple(
            (plugin, filter if plugin.trusted else GuardedFilter(plugin, filter)) for plugin, filter in ordered
        )
        self._required = sum(not filter.prefers for _, filter in filters)
        self.dropped: Counter[str] = Counter({plugin.type: 0 for plugin, _ in self._filters})
        self.noted: dict[str, int] = {}
        self.steps = tuple(SampledCall(plugin, filter.keep) for plugin, filter in self._filters)
        self._joined = self._join()

    def keep(
        self, requirements: Requirements, model: str, snapshot: Snapshot, exclude: Collection[str] = ()
    ) -> Sequence[Candidate]:
        """The candidates of ``model`` that every filter keeps, without the replicas of ``exclude``."""
        candidates: Sequence[Candidate] = snapshot.candidates(model)
        if exclude:
            candidates = [candidate for candidate in candidates if candidate.replica not in exclude]
        joined = self._joined
        if joined is not None and not self.steps[0].is_sampled:
            try:
                if len(joined(requirements, candidates)) == len(candidates):
                    return candidates
            except Exception:
                pass  # the filter at fault raises again below, under its name
        for position, step in enumerate(self.steps):
            before = len(candidates)
            if not before:
                break
            try:
                kept = step.call(requirements, candidates)
            except RequestError:
                raise
            except BaseException as error:
                raise plugin_failed(step.plugin, error) from error
            if kept or position < self._required:
                candidates = kept
            if len(candidates) < before:
                self._note(step.plugin.type, before - len(candidates))
        return candidates

    def _join(self) -> Callable[[Requirements, Sequence[Candidate]], Sequence[Candidate]] | None:
        """One call for all filters, if they can do that."""
        filters = [filter for _, filter in self._filters]
        joined = filters[0].joined(filters[1:]) if filters else None
        return joined.keep if joined is not None else None

    def _note(self, filter: str, count: int) -> None:
        self.dropped[filter] += count
        self.noted[filter] = self.noted.get(filter, 0) + count

    def drops(self, requirements: Requirements, candidates: Sequence[Candidate]) -> dict[str, Drop]:
        """For each dropped candidate, by replica: the filter and its reason."""
        drops = {}
        for position, before, kept in self._stages(requirements, candidates):
            plugin, filter = self._filters[position]
            replicas = {candidate.replica for candidate in kept}
            with plugin_errors(plugin):
                for candidate in before:
                    if candidate.replica not in replicas:
                        drops[candidate.replica] = Drop(plugin.type, filter.why(requirements, candidate))
        return drops

    def refusal(self, model: str, requirements: Requirements, candidates: Sequence[Candidate]) -> RequestError:
        """The error for ``candidates`` of ``model``, none of which the filters keep.

        If the filter that dropped the last candidates names missing capabilities, the error lists them and those that
        later filters miss in these candidates.
        """
        for position, before, kept in self._stages(requirements, candidates):
            if not kept:
                if error := self._own_refusal(position, requirements, before):
                    return error
                missing = self._missing(position, requirements, before)
                return _lacking(model, missing, requirements, before) if missing else _unhealthy(model, before)
        return _unhealthy(model, candidates)

    def _own_refusal(
        self, position: int, requirements: Requirements, candidates: Sequence[Candidate]
    ) -> RequestError | None:
        plugin, filter = self._filters[position]
        with plugin_errors(plugin):
            return filter.refusal(requirements, candidates)

    def _stages(
        self, requirements: Requirements, candidates: Sequence[Candidate]
    ) -> Iterator[tuple[int, Sequence[Candidate], Sequence[Candidate]]]:
        """Yield each filter's position, input and output, until no candidate is left."""
        for position, (plugin, filter) in enumerate(self._filters):
            if not candidates:
                return
            with plugin_errors(plugin):
                kept = filter.keep(requirements, candidates)
            if not kept and position >= self._required:
                kept = candidates
            yield position, candidates, kept
            candidates = kept

    def _missing(self, position: int, requirements: Requirements, candidates: Sequence[Candidate]) -> list[str]:
        found: dict[str, None] = {}
        for plugin, filter in self._filters[position:]:
            with plugin_errors(plugin):
                found |= dict.fromkeys(
                    lacking for candidate in candidates for lacking in filter.missing(requirements, candidate)
                )
            if not found:
                return []
        known_first = (name for name in _LISTED_FIRST if name in found)
        return list(dict.fromkeys((*known_first, *found)))


def _unhealthy(model: str, candidates: Sequence[Candidate]) -> NoHealthyBackend:
    return NoHealthyBackend(model, problems={each.backend: each.problem for each in candidates if each.problem})


def _lacking(
    model: str, missing: Sequence[str], requirements: Requirements, candidates: Sequence[Candidate]
) -> CapabilityMismatch:
    """The error for what all ``candidates`` lack. A prompt that is only too long has one that clients recognise."""
    if list(missing) == ["context_length"]:
        limit = max((candidate.capabilities.context_length or 0 for candidate in candidates), default=0)
        return ContextLengthExceeded(model, requirements.estimated_tokens, limit)
    return CapabilityMismatch(model, missing)
