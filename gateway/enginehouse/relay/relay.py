"""All live requests, and what they share."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Mapping, Sequence
from time import perf_counter

from enginehouse.domain.errors import RequestError, ShuttingDown
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.fleet.fleet import Fleet
from enginehouse.relay.door import Door
from enginehouse.relay.exchange import Exchange
from enginehouse.relay.live_request import LiveRequest
from enginehouse.relay.pass_through import Call, PassThrough
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.relay.waiting_room import WaitingRoom
from enginehouse.relay.watchdog import Watchdog
from enginehouse.relay.web_socket import WebSocket
from enginehouse.routing.body_filters import FiltersByName
from enginehouse.routing.router import Router
from enginehouse.scheduling.host import Host
from enginehouse.telemetry.decisions import Decisions
from enginehouse.telemetry.figures import Figures
from enginehouse.telemetry.listeners import Observers, tell

_LONGEST_ID = 128


class Relay:
    """Opens exchanges and the like, and keeps what they share: the router, the fleet, the upstreams and the figures.

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
        waiting_room: WaitingRoom,
        observers: Observers,
    ) -> None:
        self.router = router
        self.filters = filters
        self.fleet = fleet
        self.max_retries = max_retries
        self.upstreams = upstreams
        self.hosts = hosts
        self.waiting_room = waiting_room
        self.live: set[LiveRequest] = set()
        self.figures = Figures()
        self.decisions = Decisions()
        self._on_routed = observers.listeners("routed")
        self._on_finished = observers.listeners("finished")
        self._watchdog = Watchdog(self.live, waiting_room)
        self._ids = itertools.count(1)
        self._id_prefix = os.urandom(6).hex()
        self._closing = False

    def open(self, door: Door, path: str, headers: Headers) -> Exchange:
        """A new exchange; the door then calls its ``begin`` or, if the request is refused at once, ``cancel``."""
        exchange = Exchange(self, door, path, headers, self._request_id(headers))
        self._begun(exchange)
        return exchange

    def pass_through(self, door: Door, path: str, headers: Headers, call: Call) -> Exchange:
        """A new exchange as ``open`` makes them, for what goes to one model's engine as it comes."""
        exchange = PassThrough(self, door, path, headers, self._request_id(headers), call)
        self._begun(exchange)
        return exchange

    def web_socket(self, path: str, headers: Headers, call: Call, largest: int) -> WebSocket:
        """A new WebSocket, of which the engine may send messages of ``largest`` bytes; the door then has it ``run``."""
        socket = WebSocket(self, path, headers, self._request_id(headers), call, largest)
        self._begun(socket)
        return socket

    def refuse_new(self) -> None:
        """Take no more requests; live ones go on, but for WebSockets, which might do so for ever."""
        self._closing = True
        for socket in self._web_sockets():
            socket.cancel(_going_away())

    async def web_sockets_ended(self) -> None:
        """Wait until no WebSocket is open."""
        await asyncio.gather(*(socket.ended.wait() for socket in self._web_sockets()))

    def close(self) -> None:
        """End every live request and close every connection."""
        self._closing = True
        for request in list(self.live):
            request.cancel(_going_away())
        self._watchdog.stop()
        for upstream in self.upstreams.values():
            upstream.pool.close()

    def find(self, request_id: str) -> LiveRequest | None:
        """The live request of that id."""
        wanted = request_id.encode()
        return next((request for request in self.live if request.request_id == wanted), None)

    # --- from live requests

    def check_open(self) -> None:
        """Raises ``ShuttingDown`` once no more requests are taken."""
        if self._closing:
            raise _going_away()

    def routed(self, request_id: bytes, requirements: Requirements, route: Route) -> None:
        """A request has its route."""
        self.decisions.record(request_id, route.requested, route)
        if self._on_routed:
            tell(self._on_routed, request_id.decode(), requirements, route)

    def retried(self, backend: str) -> None:
        """A request is sent once more after ``backend`` failed it."""
        self.figures.retries[backend] += 1

    def refused(self, request_id: bytes, requirements: Requirements | None, error: RequestError) -> None:
        """A request ends with an error of ours."""
        self.figures.refused[error.code] += 1
        self.decisions.record(request_id, requirements.model if requirements else "", error)

    def ended(self, request: LiveRequest, status: int, first_byte: float | None) -> None:
        """A request is over; ``first_byte`` is the engine's time to it in seconds, if it came so far."""
        self.live.discard(request)
        route = request.route
        duration = perf_counter() - request.began
        if route is not None:
            series = self.figures.series(route.chosen.backend, route.model)
            series.requests[status] += 1
            series.duration.observe(duration)
            if first_byte is not None:
                series.first_byte.observe(first_byte)
        if self._on_finished:
            replica = route.chosen.replica if route is not None else ""
            tell(self._on_finished, request.request_id.decode(), replica, status, duration * 1000)

    def _web_sockets(self) -> Sequence[WebSocket]:
        return [request for request in self.live if isinstance(request, WebSocket)]

    def _begun(self, request: LiveRequest) -> None:
        self.live.add(request)
        self._watchdog.wake()

    def _request_id(self, headers: Headers) -> bytes:
        for name, value in headers:
            if name == b"x-request-id" and 0 < len(value) <= _LONGEST_ID and value.isascii():
                return value
        return b"req-%s%08x" % (self._id_prefix.encode(), next(self._ids))


def _going_away() -> ShuttingDown:
    return ShuttingDown("The gateway is shutting down; send the request again")
