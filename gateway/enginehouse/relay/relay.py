"""All exchanges, and what they share."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from time import perf_counter

from enginehouse.domain.errors import RequestError, ShuttingDown
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.fleet.fleet import Fleet
from enginehouse.relay.door import Door
from enginehouse.relay.exchange import Exchange
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.relay.watchdog import Watchdog
from enginehouse.routing.body_filters import FiltersByName
from enginehouse.routing.router import Router
from enginehouse.scheduling.host import Host
from enginehouse.telemetry.decisions import Decisions
from enginehouse.telemetry.figures import Figures
from enginehouse.telemetry.listeners import Observers, tell

_LONGEST_ID = 128


class Relay:
    """Opens exchanges and keeps what they share: the router, the fleet, the upstreams and the figures.

    ``hosts``: of the backends that the gateway launches, by backend.
    """

    def __init__(
        self,
        router: Router,
        fleet: Fleet,
        upstreams: dict[str, Upstream],
        *,
        max_retries: int,
        filters: FiltersByName,
        hosts: Mapping[str, Host],
        observers: Observers,
    ) -> None:
        self.router = router
        self.filters = filters
        self.fleet = fleet
        self.max_retries = max_retries
        self.upstreams = upstreams
        self.hosts = hosts
        self.live: set[Exchange] = set()
        self.figures = Figures()
        self.decisions = Decisions()
        self._on_routed = observers.listeners("routed")
        self._on_finished = observers.listeners("finished")
        self._watchdog = Watchdog(self.live)
        self._ids = itertools.count(1)
        self._id_prefix = os.urandom(6).hex()
        self._closing = False

    def open(self, door: Door, path: str, headers: Headers) -> Exchange:
        """A new exchange; the door then calls its ``begin`` or, if the request is refused at once, ``cancel``."""
        exchange = Exchange(self, door, path, headers, self._request_id(headers))
        self.live.add(exchange)
        self._watchdog.wake()
        return exchange

    def refuse_new(self) -> None:
        """Take no more requests; live ones go on."""
        self._closing = True

    def close(self) -> None:
        """End every live request and close every connection."""
        self._closing = True
        for exchange in list(self.live):
            exchange.cancel(ShuttingDown("The gateway is shutting down; send the request again"))
        self._watchdog.stop()
        for upstream in self.upstreams.values():
            upstream.pool.close()

    def find(self, request_id: str) -> Exchange | None:
        """The live exchange of that id."""
        wanted = request_id.encode()
        return next((exchange for exchange in self.live if exchange.request_id == wanted), None)

    # --- from exchanges

    def check_open(self) -> None:
        """Raises ``ShuttingDown`` once no more requests are taken."""
        if self._closing:
            raise ShuttingDown("The gateway is shutting down; send the request again")

    def routed(self, request_id: bytes, requirements: Requirements, route: Route) -> None:
        """A request has its route."""
        self.decisions.record(request_id, route.requested, route)
        if self._on_routed:
            tell(self._on_routed, request_id.decode(), requirements, route)

    def retried(self, backend: str) -> None:
        """A request goes elsewhere after ``backend`` failed it."""
        self.figures.retries[backend] += 1

    def refused(self, request_id: bytes, requirements: Requirements | None, error: RequestError) -> None:
        """A request ends with an error of ours."""
        self.figures.refused[error.code] += 1
        self.decisions.record(request_id, requirements.model if requirements else "", error)

    def ended(self, exchange: Exchange, status: int, first_byte: float | None) -> None:
        """An exchange is over; ``first_byte`` is the engine's time to it in seconds, if it came so far."""
        self.live.discard(exchange)
        route = exchange.route
        duration = perf_counter() - exchange.began
        if route is not None:
            series = self.figures.series(route.chosen.backend, route.model)
            series.requests[status] += 1
            series.duration.observe(duration)
            if first_byte is not None:
                series.first_byte.observe(first_byte)
        if self._on_finished:
            replica = route.chosen.replica if route is not None else ""
            tell(self._on_finished, exchange.request_id.decode(), replica, status, duration * 1000)

    def _request_id(self, headers: Headers) -> bytes:
        for name, value in headers:
            if name == b"x-request-id" and 0 < len(value) <= _LONGEST_ID and value.isascii():
                return value
        return b"req-%s%08x" % (self._id_prefix.encode(), next(self._ids))
