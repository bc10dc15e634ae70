"""A live request of a worker, in the process that shows and moves the requests of all workers."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Route
from enginehouse.domain.request_record import StreamTokens
from enginehouse.domain.ticket import Ticket
from enginehouse.processes.workers.channel import Channel, SentError
from enginehouse.processes.workers.worker import Worker
from enginehouse.relay.live.live_request import LiveRequest, MovedStream
from enginehouse.relay.live.live_state import LiveState


class WorkerRequest(LiveRequest):
    """Shows the last ``state`` that its ``worker`` told, and passes orders on to it."""

    def __init__(self, state: LiveState, worker: Channel) -> None:
        self._state = state
        self._worker = worker
        self._route: Route | None = None
        self._held: Ticket | None = None

    def renew(self, state: LiveState, route_of: Callable[[LiveState], Route | None], held: Ticket | None) -> None:
        """Take a newer ``state`` over. ``route_of`` makes the route that it tells. ``held``: the request's ticket here.

        The route stays the same object until the request goes elsewhere: that is how ``PlacedRequests`` sees it.
        """
        before, self._state, self._held = self._state, state, held
        if self._route is None or (state.replica, len(state.attempts)) != (before.replica, len(before.attempts)):
            self._route = route_of(state)

    def state(self) -> LiveState:
        return self._state

    @property
    def route(self) -> Route | None:
        return self._route

    @property
    def ticket(self) -> Ticket | None:
        return self._held

    @property
    def position(self) -> int | None:
        return self._state.position

    @property
    def pieces(self) -> int | None:
        return self._state.pieces

    def tokens(self) -> StreamTokens:
        return self._state.tokens

    async def move(self, destination: str, engine_request: str = "", cause: str = "operator") -> MovedStream:
        return await self._worker.ask(Worker.move, self._state.number, destination, engine_request, cause)

    def fail(self, error: RequestError) -> None:
        self._worker.send(Worker.fail, self._state.number, SentError.of(error))

    def cut_off(self, why: str) -> None:
        self._worker.send(Worker.cut_off, self._state.number, why)

    def check_time(self, now: float) -> None:
        """Its worker does."""
