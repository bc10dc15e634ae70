"""A request in progress, as operators, the sweep over all of them and the counters see it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from enginehouse.domain.errors import Cancelled, CannotContinue, RequestError
from enginehouse.domain.replica import Route
from enginehouse.domain.request_record import StreamTokens
from enginehouse.domain.requirements import Requirements, heard
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.attempt import client_error
from enginehouse.relay.live.live_state import LiveState


def each_alone(requests: Iterable[LiveRequest], step: Callable[[LiveRequest], None]) -> None:
    """Take ``step`` for each of ``requests``. One for which it raises fails alone."""
    for request in requests:
        try:
            step(request)
        except Exception as error:  # noqa: PERF203 - free until one raises
            request.fail_alone(error)


class MovedStream(NamedTuple):
    """A stream that was moved. ``gap_ms``: how long its client waited for the next event."""

    id: str
    source: str
    destination: str
    gap_ms: float


class LiveRequest(ABC):
    """A request in progress, of this process or of another one. Its ``state`` has most of what it tells.

    - ``moves``: how often it was moved to another backend.
    - ``endless``: it has no end of its own.
    """

    endless: ClassVar[bool] = False
    moves: int = 0

    @property
    def request_id(self) -> bytes:
        """The value of ``x-request-id``. Clients choose it, so two live requests may have the same."""
        return self.state().id

    @property
    def requirements(self) -> Requirements | None:
        """The requirements of the request; ``None`` until it is whole."""
        told = self.state().requirements
        return heard(told) if told is not None else None

    @property
    def began(self) -> float:
        """When the request was whole, in seconds of the gateway's clock."""
        return self.state().began

    @property
    @abstractmethod
    def route(self) -> Route | None:
        """The route of the current attempt."""

    @property
    def model(self) -> str | None:
        """The model that serves it, or that it waits for; ``None`` until that is decided."""
        return self.state().model

    @property
    @abstractmethod
    def ticket(self) -> Ticket | None:
        """The ticket of the current attempt, where the backend has a queue, or that for the model it waits for."""

    @property
    def phase(self) -> Phase:
        """How far the request is."""
        return self.state().phase

    @property
    def position(self) -> int | None:
        """Its place among those that wait for its model, where another process keeps these; else ``None``."""
        return None

    @property
    def pieces(self) -> int | None:
        """How many pieces of its answer have come. ``None`` while no engine has it, or its client reads too slowly."""
        return None

    @property
    def waiting_reply(self) -> Reply | None:
        """The reply of a stream that waits for its first byte; a progress report may begin it."""
        return None

    def tokens(self) -> StreamTokens:
        """The tokens of a stream, as far as they are known."""
        return StreamTokens()

    @abstractmethod
    def state(self) -> LiveState:
        """All that is shown of it."""

    @property
    def why_not_movable(self) -> str | None:
        """Why it cannot be moved to another backend; ``None`` if it can."""
        return self.state().stays

    async def move(self, destination: str, engine_request: str = "", cause: str = "operator") -> MovedStream:
        """Continue its stream at the backend ``destination``, where engines may know it as ``engine_request``.

        ``cause``: who wants that, for its trace: an ``operator``, ``rescheduling`` or a ``drain``.
        Raises ``NotFound`` for an unknown backend, and ``CannotContinue`` if the stream stays where it is.
        """
        raise CannotContinue(f"The request stays where it is: {self.why_not_movable}")

    async def closed(self) -> None:
        """Wait until an ``endless`` request has ended."""

    def cancel(self, error: RequestError | None = None) -> None:
        """End the request now, with ``error`` or else as cancelled by an operator."""
        self.fail(error or Cancelled("The request was cancelled by an operator"))

    @abstractmethod
    def fail(self, error: RequestError) -> None:
        """End the request with ``error``, unless it has ended. The client gets it if it still can."""

    def fail_alone(self, error: Exception) -> None:
        """End the request, whose part of a sweep over requests raised ``error``, which is handled now."""
        self.fail(client_error(error))

    @abstractmethod
    def cut_off(self, why: str) -> None:
        """Act as if the engine had broken the request off, because the gateway stops it; ``why``: for people."""

    @abstractmethod
    def check_time(self, now: float) -> None:
        """Act on a time limit that has passed at ``now``, in seconds of the gateway's clock."""
