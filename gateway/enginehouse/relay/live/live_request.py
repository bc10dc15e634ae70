"""A request in progress."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, NamedTuple

from enginehouse.domain.errors import Cancelled, CannotContinue, RequestError
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.route import Reason, Route
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.attempt import Attempt, client_error, defect
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.door import Caller
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_state import LiveState, StreamTokens
from enginehouse.telemetry.log_context import log_context
from enginehouse.telemetry.request_facts import AttemptFacts


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
    """A request in progress, as operators, the watchdog and the counters see it.

    - ``job``: the client's; only in the process that asks engines.
    - ``moves``: how often it was moved to another backend.
    - ``endless``: it has no end of its own.
    """

    endless: ClassVar[bool] = False
    job: Job
    _dispatch: Dispatch
    _status: int = 0
    moves: int = 0

    @property
    def address(self) -> str:
        """The client's address; empty if it has none."""
        return ""

    @property
    def request_id(self) -> bytes:
        """The value of ``x-request-id``. Clients choose it, so two live requests may have the same."""
        return self.job.request_id

    @property
    def requirements(self) -> Requirements | None:
        """The requirements of the request; ``None`` until it is whole."""
        return self.job.requirements

    @property
    def began(self) -> float:
        """When the request was whole, in seconds of the gateway's clock."""
        return self.job.began

    @property
    def attempt(self) -> Attempt | None:
        """The current attempt."""
        return self._dispatch.attempt

    @property
    def attempts(self) -> list[AttemptFacts]:
        """The attempts that have ended, in order."""
        return self._dispatch.attempts

    @property
    def route(self) -> Route | None:
        """The route of the current attempt."""
        attempt = self.attempt
        return attempt.route if attempt is not None else None

    @property
    def model(self) -> str | None:
        """The model that serves it, or that it waits for; ``None`` until that is decided."""
        route, place = self.route, self._dispatch.place
        return route.model if route is not None else place.ticket.replica if place is not None else None

    @property
    def ticket(self) -> Ticket | None:
        """The ticket of the current attempt, where the backend has a queue, or that for the model it waits for."""
        attempt, place = self.attempt, self._dispatch.place
        if place is not None:
            return place.ticket
        return attempt.slot.ticket if attempt is not None and attempt.slot is not None else None

    @property
    def phase(self) -> Phase:
        """How far the request is."""
        if self._status:
            return Phase.DONE if self._status < 400 else Phase.FAILED
        return self._live_phase

    @property
    def position(self) -> int | None:
        """Its place among those that wait for its model, where another process keeps these; else ``None``."""
        return None

    @property
    def waiting_reply(self) -> Reply | None:
        """The reply of a stream that waits for its first byte; a progress report may begin it."""
        return None

    def tokens(self) -> StreamTokens:
        """The tokens of a stream, as far as they are known."""
        return StreamTokens()

    def state(self) -> LiveState:
        """All that is shown of it."""
        job, dispatch, route = self.job, self._dispatch, self.route
        place, attempts = dispatch.place, [each.record() for each in dispatch.attempts]
        if dispatch.attempt is not None:
            attempts.append(dispatch.attempt.facts("live").record())
        return LiveState(
            id=job.request_id,
            path=job.path,
            address=self.address,
            caller=job.key,
            user=job.user,
            began=job.began,
            requirements=job.requirements.told() if job.requirements is not None else None,
            replica=route.chosen.replica if route is not None else None,
            model=self.model,
            reason=route.reason if route is not None else Reason.MATCH,
            attempted=route.attempted if route is not None else (),
            waits_for=tuple(place.replicas(job)) if place is not None else (),
            phase=self.phase,
            moves=self.moves,
            tokens=self.tokens(),
            stays=self.why_not_movable,
            attempts=tuple(attempts),
        )

    def answer_ends(self) -> tuple[bytes, bytes]:
        """The beginning and the end of the answer of a request that has ended, for its trace."""
        return b"", b""

    async def move(self, destination: str, engine_request: str = "", cause: str = "operator") -> MovedStream:
        """Continue its stream at the backend ``destination``, where engines may know it as ``engine_request``.

        ``cause``: who wants that, for its trace: an ``operator``, ``rescheduling`` or a ``drain``.
        Raises ``NotFound`` for an unknown backend, and ``CannotContinue`` if the stream stays where it is.
        """
        raise CannotContinue(f"The request stays where it is: {self.why_not_movable}")

    async def closed(self) -> None:
        """Wait until an ``endless`` request has ended."""

    @property
    @abstractmethod
    def why_not_movable(self) -> str | None:
        """Why it cannot be moved to another backend; ``None`` if it can."""

    def cancel(self, error: RequestError | None = None) -> None:
        """End the request now, with ``error`` or else as cancelled by an operator."""
        self.fail(error or Cancelled("The request was cancelled by an operator"))

    @abstractmethod
    def fail(self, error: RequestError) -> None:
        """End the request with ``error``, unless it has ended. The client gets it if it still can."""

    def fail_alone(self, error: Exception) -> None:
        """End the request, whose part of a sweep over requests raised ``error``, which is handled now."""
        job = self.job
        with log_context.named(job.request_id, job.trace_id):
            try:
                self.fail(client_error(error))
            except Exception:
                defect("a request could not be ended")

    @abstractmethod
    def cut_off(self, why: str) -> None:
        """Act as if the engine had broken the request off, because the gateway stops it; ``why``: for people."""

    @abstractmethod
    def check_time(self, now: float) -> None:
        """Act on a time limit that has passed at ``now``, in seconds of the gateway's clock."""

    def _start(self, body: bytes, caller: Caller | None) -> None:
        """Admit the request, which is whole now, and send it on its way; or end it with an error."""
        job = self.job
        log_context.enter(job.request_id, job.trace_id)
        try:
            job.admit(body, caller)
            if job.context.addresses is not None:
                job.admit_address(job.context.addresses, self.address)
            self._dispatch.start()
        except RequestError as error:
            job.advise(error)
            self.fail(error)
        except Exception:
            self.fail(defect())
        finally:
            log_context.leave()

    @property
    def _live_phase(self) -> Phase:
        """How far the request is, while it is live."""
        return self._dispatch.phase
