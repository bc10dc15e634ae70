"""A live request of a worker, in the process that shows and moves the requests of all workers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from enginehouse.domain.errors import RequestError
from enginehouse.domain.request_record import AttemptRecord
from enginehouse.domain.requirements import Requirements, heard
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.live.live_request import LiveRequest, MovedStream
from enginehouse.relay.live.live_state import LiveState


class WorkerRequest(LiveRequest):
    """Shows the last ``state`` that its worker told, and passes orders on to it.

    - ``place``: the route as the state tells it. ``held``: the request's ticket here.
    - ``order`` sends ``cancel`` or ``cut_off`` to the worker, with the error or the reason.
    - ``order_move`` sends a move and waits for its end.
    """

    __slots__ = ("held", "order", "order_move", "place", "state")

    def __init__(
        self,
        state: LiveState,
        order: Callable[[int, str, RequestError | None, str], None],
        order_move: Callable[[int, str, str, str], Awaitable[MovedStream]],
    ) -> None:
        self.state = state
        self.moves = state.moves
        self.place: Route | None = None
        self.held: Ticket | None = None
        self.order = order
        self.order_move = order_move

    def renew(self, state: LiveState, place: Route | None, held: Ticket | None) -> None:
        """Take a newer ``state`` over."""
        self.state, self.moves = state, state.moves
        self.place, self.held = place, held

    @property
    def path(self) -> str:
        return self.state.path

    @property
    def address(self) -> str:
        return self.state.address

    @property
    def request_id(self) -> bytes:
        return self.state.id

    @property
    def requirements(self) -> Requirements | None:
        told = self.state.requirements
        return heard(told) if told is not None else None

    @property
    def caller(self) -> str | None:
        return self.state.caller

    @property
    def user(self) -> str | None:
        return self.state.user

    @property
    def began(self) -> float:
        return self.state.began

    @property
    def attempt(self) -> Attempt | None:
        return None  # its record is the last of ``attempts``

    @property
    def attempts(self) -> Sequence[AttemptRecord]:
        return self.state.attempts

    @property
    def route(self) -> Route | None:
        return self.place

    @property
    def model(self) -> str | None:
        return self.state.model

    @property
    def waits_for(self) -> Sequence[str]:
        return self.state.waits_for

    @property
    def ticket(self) -> Ticket | None:
        return self.held

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def position(self) -> int | None:
        return self.state.position

    @property
    def prompt_tokens(self) -> int | None:
        return self.state.prompt_tokens

    @property
    def output_tokens(self) -> int | None:
        return self.state.output_tokens

    @property
    def max_tokens(self) -> int | None:
        return self.state.max_tokens

    @property
    def why_not_movable(self) -> str | None:
        return self.state.stays

    async def move(self, destination: str, engine_request: str = "", cause: str = "operator") -> MovedStream:
        return await self.order_move(self.state.number, destination, engine_request, cause)

    def cancel(self, error: RequestError | None = None) -> None:
        self.order(self.state.number, "cancel", error, "")

    def cut_off(self, why: str) -> None:
        self.order(self.state.number, "cut_off", None, why)

    def check_time(self, now: float) -> None:
        """Its worker does."""
