"""Filters: drop candidates that cannot serve a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from enginehouse import Candidate, Filter, Health, Requirements
from enginehouse_routing.extractors import LONGEST_TOKENS
from enginehouse_routing.structs import ErrorShareConfig

_HEALTHY: Final = Health.HEALTHY


class HealthFilter(Filter):
    """Keeps the replicas of healthy backends that are not being drained.

    If there are none, it keeps those that serve requests but answer their health checks late: an engine that computes a
    long prompt may do nothing else.
    """

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [each for each in candidates if each.health is _HEALTHY and not each.draining] or [
            each for each in candidates if each.late and each.load.pending and not each.draining
        ]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        if candidate.health is Health.UNKNOWN:
            return f"backend '{candidate.backend}' has not been checked yet"
        if candidate.health is Health.UNHEALTHY:
            return f"backend '{candidate.backend}' is unhealthy" + (
                f": {candidate.problem}" if candidate.problem else ""
            )
        return f"backend '{candidate.backend}' is being drained"

    def joined(self, following: Sequence[Filter]) -> Filter | None:
        types = [type(each) for each in following]
        return (
            AllFilters((self, *following)) if types == [CapabilitiesFilter, ContextLengthFilter, PausedFilter] else None
        )


class CapabilitiesFilter(Filter):
    """Drops replicas known to lack the vision, tools or JSON mode that a request needs."""

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if requirements.needs_vision:
            candidates = [candidate for candidate in candidates if candidate.capabilities.vision is not False]
        if requirements.needs_tools:
            candidates = [candidate for candidate in candidates if candidate.capabilities.tools is not False]
        if requirements.needs_json_mode:
            candidates = [candidate for candidate in candidates if candidate.capabilities.json_mode is not False]
        return candidates

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return f"lacks {', '.join(self.missing(requirements, candidate))}"

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        return [name for name in _needs(requirements) if getattr(candidate.capabilities, name) is False]


class ContextLengthFilter(Filter):
    """Drops replicas whose context is known to be too short for the request's estimated tokens."""

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        tokens = _tokens(requirements)
        return [
            candidate
            for candidate in candidates
            if (length := candidate.capabilities.context_length) is None or length >= tokens
        ]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return f"about {_tokens(requirements)} tokens do not fit into {candidate.capabilities.context_length}"

    def missing(self, requirements: Requirements, candidate: Candidate) -> Sequence[str]:
        return () if self.keep(requirements, [candidate]) else ("context_length",)


class PausedFilter(Filter):
    """Prefers replicas that are not paused. Engines are paused that asked for it, or refused what others serve."""

    prefers: ClassVar[bool] = True

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [candidate for candidate in candidates if not candidate.paused]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return candidate.paused


class ErrorShareFilter(Filter):
    """Prefers replicas of engines with few bad answers in the last two minutes. Others get only probes meanwhile."""

    Config: ClassVar[type[ErrorShareConfig]] = ErrorShareConfig
    prefers: ClassVar[bool] = True

    def __init__(self, config: ErrorShareConfig) -> None:
        self._most = config.most

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        return [candidate for candidate in candidates if candidate.load.error_share <= self._most]

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        return f"{candidate.load.error_share:.0%} of its last answers were bad, more than {self._most:.0%}"


class AllFilters(Filter):
    """Keeps what the first four filters of this plugin keep, in one pass if the request needs no capability.

    It runs for every request. Candidates never change but for their load, so it remembers of each model's last ones, if
    all of them may serve, the shortest context among them.
    """

    def __init__(self, filters: Sequence[Filter]) -> None:
        self._filters = filters
        self._last: dict[str, tuple[tuple[Candidate, ...], float]] = {}

    def keep(self, requirements: Requirements, candidates: Sequence[Candidate]) -> Sequence[Candidate]:
        if requirements.needs_vision or requirements.needs_tools or requirements.needs_json_mode:
            for filter in self._filters:
                candidates = filter.keep(requirements, candidates)
            return candidates
        tokens: int = requirements.extra.get(LONGEST_TOKENS, requirements.estimated_tokens)
        last = self._last.get(requirements.model)
        if last is not None and last[0] is candidates and tokens <= last[1]:
            return candidates
        kept = [
            candidate
            for candidate in candidates
            if candidate.health is _HEALTHY
            and not candidate.draining
            and not candidate.paused
            and ((length := candidate.capabilities.context_length) is None or length >= tokens)
        ]
        if kept and len(kept) == len(candidates) and isinstance(candidates, tuple):
            self._remember(candidates)
        return kept

    def _remember(self, candidates: tuple[Candidate, ...]) -> None:
        lengths = [candidate.capabilities.context_length for candidate in candidates]
        shortest = min((length for length in lengths if length is not None), default=float("inf"))
        self._last[candidates[0].model] = candidates, shortest

    def why(self, requirements: Requirements, candidate: Candidate) -> str:
        """The reason of the first filter that drops ``candidate``."""
        dropping = (filter for filter in self._filters if not filter.keep(requirements, [candidate]))
        return next((filter.why(requirements, candidate) for filter in dropping), "")


def _needs(requirements: Requirements) -> Iterator[str]:
    if requirements.needs_vision:
        yield "vision"
    if requirements.needs_tools:
        yield "tools"
    if requirements.needs_json_mode:
        yield "json_mode"


def _tokens(requirements: Requirements) -> int:
    """The tokens that must fit into one context."""
    tokens: int = requirements.extra.get(LONGEST_TOKENS, requirements.estimated_tokens)
    return tokens
