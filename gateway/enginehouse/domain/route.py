"""Routes and their explanations."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from enginehouse.domain.replica import Candidate


class Reason(str, Enum):
    """Why the gateway chose the model of a route."""

    MATCH = "match"
    ALIAS = "alias"
    FALLBACK = "fallback"
    RETRY = "retry"


class RouteDetails(msgspec.Struct, frozen=True):
    """The figures of a decision. ``candidates`` counts those of the chosen model, also those that failed the request.

    ``dropped`` counts the candidates that each filter dropped, of all models that were tried.
    """

    strategy: str
    candidates: int
    dropped: dict[str, int] = {}
    score: float | None = None


class Route(msgspec.Struct, frozen=True):
    """The routing decision for one request."""

    requested: str
    """The model that the client asked for."""
    chosen: Candidate
    """The replica that serves the request."""
    reason: Reason
    attempted: tuple[str, ...]
    """The models considered, in order. The last one is the chosen replica's."""
    details: RouteDetails | None = None
    """Only of traced requests."""
    prefill: Candidate | None = None
    """The replica that reads the prompt for ``chosen``, if another one does."""

    @property
    def model(self) -> str:
        """The model name that the engine receives."""
        return self.chosen.model


class Verdict(msgspec.Struct, frozen=True):
    """A strategy's rating of one candidate.

    ``score`` is the total, or ``None`` if the strategy does not score; ``parts`` are its components, by name.
    """

    score: float | None = None
    parts: dict[str, float] = {}


class ExplainedCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate of an ``Explanation``."""

    replica: str
    backend: str
    model: str
    score: float | None = None
    parts: dict[str, float] = {}
    dropped_by: str | None = None
    """The filter that dropped the candidate, or ``role`` if it serves nothing alone; ``None`` if it was kept."""
    why: str | None = None
    """The reason."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a routing decision, as ``enginehouse explain route`` prints them.

    ``chosen`` is a replica, or ``None`` with an ``error`` object.
    """

    requested: str
    resolved: str | None
    reason: str | None
    attempted: list[str]
    requirements: dict[str, Any]
    candidates: list[ExplainedCandidate]
    chosen: str | None
    prefill: str | msgspec.UnsetType = msgspec.UNSET
    """The replica that reads the prompt for ``chosen``; absent if no other one does."""
    error: dict[str, Any] | None
