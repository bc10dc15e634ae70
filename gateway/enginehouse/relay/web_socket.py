"""A WebSocket between a client and the engine of the model that it named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from time import perf_counter
from typing import Any

from websockets.asyncio.client import ClientConnection

from enginehouse.domain.errors import Cancelled, ReplicaGone, RequestError, UpstreamTimeout
from enginehouse.domain.replica import Load
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.interfaces.drivers import EngineResponse
from enginehouse.relay.conversation import Conversation
from enginehouse.relay.door import Caller, WebSocketDoor
from enginehouse.relay.headers import origin_lines, read_lines
from enginehouse.relay.owner import Owner
from enginehouse.relay.pass_through import Call, route_to_engine
from enginehouse.relay.place import Place
from enginehouse.relay.tries import Tries
from enginehouse.relay.upstream.web_socket import headers_for_client, open_web_socket
from enginehouse.scheduling.host import Host

_CLIENT_GONE = 499
_OPENED = 101


class WebSocket:
    """Has one opened by the engine, then opens it for the client, and carries messages until one of them ends it.

    It counts as load of the backend, and holds its place at the host, for as long as it is open. ``largest`` is the
    size in bytes of the largest message that an engine may send.
    """

    def __init__(self, owner: Owner, path: str, headers: Headers, request_id: bytes, call: Call, largest: int) -> None:
        self._owner = owner
        self._headers = headers
        self._call = call
        self._largest = largest
        self._caller: Caller | None = None
        self._load: Load | None = None
        self._place: Place | None = None
        self._engine: ClientConnection | None = None
        self._conversation: Conversation | None = None
        self._stop: asyncio.Future[RequestError] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.path = path
        self.request_id = request_id
        self.phase = Phase.ROUTING
        self.requirements: Requirements | None = None
        self.route: Route | None = None
        self.began = perf_counter()

    @property
    def ticket(self) -> Ticket | None:
        """What it waits with, or is being served for, at the host of an engine that the gateway launches."""
        return self._place.ticket if self._place is not None else None

    def cancel(self, error: RequestError | None = None) -> None:
        """End it here and now."""
        if not self._stop.done():
            self._stop.set_result(error or Cancelled("The request was cancelled by an operator"))

    def check_time(self, now: float) -> None:
        """Act on a time limit that has passed."""
        if self._conversation is not None and now >= self._conversation.deadline and self.route is not None:
            self.cancel(UpstreamTimeout(f"Backend '{self.route.chosen.backend}' takes no more messages"))

    async def run(self, door: WebSocketDoor, enter: Callable[[], Caller | None]) -> None:
        """Its whole life; ``enter`` tells who the client is, or raises what it is answered.

        Raises ``RequestError`` if the client still waits for an answer to its handshake.
        """
        status = _CLIENT_GONE
        try:
            caller = enter()
            self.requirements = needs = self._call.needs()
            if caller is not None:
                caller.admit(needs)
                self._caller = caller
            answer = await self._unless_left(door, self._reach(needs, door.subprotocols))
            if answer is not None:
                status = await self._answer(door, answer)
        except RequestError as error:
            status = error.status
            self._owner.refused(self.request_id, self.requirements, error)
            raise
        finally:
            self._end(status)

    # --- on the way there

    async def _unless_left(
        self, door: WebSocketDoor, work: Coroutine[Any, Any, ClientConnection | EngineResponse]
    ) -> ClientConnection | EngineResponse | None:
        """What ``work`` comes to; ``None`` if the client left before."""
        working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(door.receive())
        ends: set[asyncio.Future[Any]] = {working, leaving, self._stop}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            leaving.cancel()
            await asyncio.gather(working, leaving, return_exceptions=True)
        if self._stop.done():
            raise self._stop.result()
        return working.result() if leaving.cancelled() else None

    async def _reach(self, needs: Requirements, subprotocols: Sequence[str]) -> ClientConnection | EngineResponse:
        tries, route, waiting_since = Tries(), self._route_for(needs, ()), None
        while True:
            try:
                return await self._try(route, needs, subprotocols, waiting_since)
            except RequestError as error:
                is_gone = isinstance(error, ReplicaGone)
                following = self._following(needs, tries.send_back() if is_gone else self._elsewhere(tries, route))
                if following is None:
                    raise
            waiting_since = self._place.ticket.arrived if is_gone and self._place is not None else None
            self._leave_place()
            if not is_gone:
                self._owner.retried(route.chosen.backend)
            tries, route = following

    def _route_for(self, needs: Requirements, failed: tuple[str, ...]) -> Route:
        return route_to_engine(self._owner.router, needs, self._owner.fleet.snapshot, self._caller, failed)

    def _elsewhere(self, tries: Tries, route: Route) -> Tries | None:
        return tries.elsewhere(route.chosen.replica, self._owner.max_retries)

    def _following(self, needs: Requirements, tries: Tries | None) -> tuple[Tries, Route] | None:
        """Where to go next, if anywhere."""
        if tries is None:
            return None
        try:
            return tries, self._route_for(needs, tries.failed)
        except RequestError:
            return None

    async def _try(
        self, route: Route, needs: Requirements, subprotocols: Sequence[str], waiting_since: float | None
    ) -> ClientConnection | EngineResponse:
        owner, chosen = self._owner, route.chosen
        self.route, self._load = route, chosen.load
        self._load.begin()
        owner.routed(self.request_id, needs, route)
        host = owner.hosts.get(chosen.backend)
        if host is not None:
            await self._take_place(host, chosen.replica, waiting_since)
        self.phase = Phase.SERVING
        try:
            answer = await open_web_socket(
                owner.upstreams[chosen.backend],
                self._call.target,
                self._headers,
                self.request_id,
                subprotocols=subprotocols,
                largest=self._largest,
            )
        except RequestError as error:
            owner.fleet.failed(chosen.backend, error.message)
            raise
        owner.fleet.succeeded(chosen.backend)
        if isinstance(answer, ClientConnection):
            self._engine = answer
        return answer

    async def _take_place(self, host: Host, replica: str, waiting_since: float | None) -> None:
        self.phase = Phase.QUEUED
        turn = _Turn()
        priority = self._caller.priority if self._caller is not None else 0
        self._place = Place(turn, host, self.request_id, replica, priority, waiting_since)
        self._place.take()
        refusal = await turn.comes
        if refusal is not None:
            raise refusal

    # --- open

    async def _answer(self, door: WebSocketDoor, answer: ClientConnection | EngineResponse) -> int:
        """Give the client what the engine answered; the status that all this ends with."""
        route = self.route
        assert route is not None
        origin = origin_lines(route.chosen.backend, route.model, route.reason.value)
        ours = [*read_lines(origin), (b"x-request-id", self.request_id)]
        if isinstance(answer, EngineResponse):
            await door.refuse(answer.status, [*answer.headers, *ours], answer.body)
            return answer.status
        assert answer.response is not None
        await door.accept(answer.subprotocol, [*headers_for_client(answer.response), *ours])
        stall = self._owner.upstreams[route.chosen.backend].timeouts.stall
        self._conversation = Conversation(door, answer, stall)
        await self._conversation.carry(self._stop)
        return self._stop.result().status if self._stop.done() else _OPENED

    # --- at the end

    def _leave_place(self) -> None:
        load, self._load = self._load, None
        place, self._place = self._place, None
        if load is not None:
            load.end()
        if place is not None:
            place.leave()

    def _end(self, status: int) -> None:
        self.phase = Phase.DONE if status < 400 else Phase.FAILED
        if self._engine is not None:
            self._engine.transport.abort()
        if self._caller is not None:
            self._caller.leave()
        self._owner.ended(self, status, None)
        self._leave_place()
        self.ended.set()


class _Turn:
    """Waits for a place."""

    def __init__(self) -> None:
        self.comes: asyncio.Future[RequestError | None] = asyncio.get_running_loop().create_future()

    def depart(self) -> None:
        if not self.comes.done():
            self.comes.set_result(None)

    def turned_away(self, error: RequestError) -> None:
        if not self.comes.done():
            self.comes.set_result(error)
