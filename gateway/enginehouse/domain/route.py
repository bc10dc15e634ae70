"""Routes: where requests go."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

from enginehouse.domain.explanation import RouteDetails
from enginehouse.domain.replica import Candidate


class Reason(str, Enum):
    """Why the gateway chose the model of a route."""

    MATCH = "match"
    ALIAS = "alias"
    FALLBACK = "fallback"
    RETRY = "retry"
    HEDGE = "hedge"


@dataclass(init=False)
class Route:
    """The routing decision for one request. It never changes.

    - ``requested``: the model that the client asked for.
    - ``chosen``: the replica that serves the request.
    - ``attempted``: the models considered, in order. The last one is the chosen replica's.
    - ``details``: only of traced requests.
    - ``prefill``: the replica that reads the prompt for ``chosen``, if another one does.
    - ``placement``: what the strategy follows the request with, a ``Placement``; ``None`` if it does not.
    - ``waits``: ``chosen`` has no free slot: the request waits for any replica of the model. Nothing follows it yet.
    """

    requested: str
    chosen: Candidate
    reason: Reason
    attempted: tuple[str, ...]
    details: RouteDetails | None
    prefill: Candidate | None
    placement: Any
    waits: bool

    def __init__(
        self,
        requested: str,
        chosen: Candidate,
        reason: Reason,
        attempted: tuple[str, ...],
        details: RouteDetails | None = None,
        prefill: Candidate | None = None,
        placement: Any = None,
        waits: bool = False,
    ) -> None:
        self.requested = requested
        self.chosen = chosen
        self.reason = reason
        self.attempted = attempted
        self.details = details
        self.prefill = prefill
        self.placement = placement
        self.waits = waits

    @property
    def model(self) -> str:
        """The model that serves the request."""
        return self.chosen.model

    def __reduce__(self) -> tuple[Any, ...]:
        """How copies are made: a compiled class has no other way."""
        return Route, tuple([getattr(self, each.name) for each in fields(self)])
