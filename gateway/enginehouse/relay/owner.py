"""What all live requests share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from enginehouse.domain.errors import RequestError
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.fleet.fleet import Fleet
from enginehouse.relay.live_request import LiveRequest
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.relay.waiting_room import WaitingRoom
from enginehouse.routing.body_filters import FiltersByName
from enginehouse.routing.router import Router
from enginehouse.scheduling.host import Host


class Owner(Protocol):
    """The relay, as those see it that it carries. ``hosts``: of the backends that the gateway launches."""

    router: Router
    filters: FiltersByName
    fleet: Fleet
    upstreams: dict[str, Upstream]
    hosts: Mapping[str, Host]
    waiting_room: WaitingRoom
    max_retries: int

    def routed(self, request_id: bytes, requirements: Requirements, route: Route) -> None:
        """A request has its route."""

    def retried(self, backend: str) -> None:
        """A request is sent once more after ``backend`` failed it."""

    def refused(self, request_id: bytes, requirements: Requirements | None, error: RequestError) -> None:
        """A request ends with an error of ours."""

    def ended(self, request: LiveRequest, status: int, first_byte: float | None) -> None:
        """A request is over; ``first_byte`` is the engine's time to it in seconds, if it came so far."""
