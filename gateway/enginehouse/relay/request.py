"""A request: what is asked, its attempts at engines, and its one end."""

from __future__ import annotations

from abc import abstractmethod
from threading import get_ident
from typing import Final

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Reason, Route
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.relay.attempts.attempt import Attempt, client_error, defect
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_request import LiveRequest
from enginehouse.relay.live.live_requests import WITHDRAWN, LiveRequests
from enginehouse.relay.live.live_state import LiveState
from enginehouse.telemetry.answer_meter import NO_ANSWER, AnswerSize
from enginehouse.telemetry.log_context import log_context
from enginehouse.telemetry.request_facts import RequestFacts

CLIENT_LEFT: Final = 499
"""nginx's status for its log, if the client has left: it sees none."""


class Request(LiveRequest):
    """A request of this process, from its arrival to its record.

    It is live as soon as it is made. It owns what is asked (``job``), the attempts at engines, the time limits, and
    the end. Each of its kinds ends it by ``end``, once. ``docs/explanation/relay.md`` has its states.

    - ``address``: the client's; empty if it has none.
    - ``_overhead``: the seconds that the gateway took until the request was sent.
    """

    _status: int = 0
    _overhead: float = 0.0
    address: str = ""

    def __init__(self, job: Job, live_requests: LiveRequests) -> None:
        self.job = job
        self._live_requests = live_requests
        self._dispatch = Dispatch(job, self)

    # --- as others see it

    @property
    def request_id(self) -> bytes:
        return self.job.request_id

    @property
    def requirements(self) -> Requirements | None:
        return self.job.requirements

    @property
    def began(self) -> float:
        return self.job.began

    @property
    def attempt(self) -> Attempt | None:
        """The current attempt."""
        return self._dispatch.attempt

    @property
    def attempts_ended(self) -> int:
        """How many attempts have ended."""
        return len(self._dispatch.attempts)

    @property
    def route(self) -> Route | None:
        attempt = self.attempt
        return attempt.route if attempt is not None else None

    @property
    def model(self) -> str | None:
        route, place = self.route, self._dispatch.place
        return route.model if route is not None else place.ticket.replica if place is not None else None

    @property
    def ticket(self) -> Ticket | None:
        attempt, place = self.attempt, self._dispatch.place
        if place is not None:
            return place.ticket
        return attempt.slot.ticket if attempt is not None and attempt.slot is not None else None

    @property
    def phase(self) -> Phase:
        if self._status:
            return Phase.DONE if self._status < 400 else Phase.FAILED
        return self._live_phase

    @property
    def has_ended(self) -> bool:
        """Whether its record is made."""
        return bool(self._status)

    @property
    def _live_phase(self) -> Phase:
        """How far the request is, while it is live."""
        return self._dispatch.phase

    def state(self) -> LiveState:
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
            pieces=self.pieces,
            tokens=self.tokens(),
            stays=self.why_not_movable,
            attempts=tuple(attempts),
        )

    def answer_ends(self) -> tuple[bytes, bytes]:
        """The beginning and the end of the answer of a request that has ended, for its trace."""
        return b"", b""

    # --- its beginning

    @abstractmethod
    def send_attempt(self, attempt: Attempt, reuse: bool) -> None:
        """Send the dispatch's job to the engine of ``attempt``; ``reuse``: a kept connection will do."""

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        """Admit the request, which is whole now, and send it on its way; or end it with an error.

        Does nothing after ``cancel``.
        """
        if self._status:
            return
        job = self.job
        log_context.request, log_context.thread = job, get_ident()  # ``named`` would take longer
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
            log_context.request = None
        self._overhead = job.context.clock.now() - job.began

    # --- its end

    def fail_alone(self, error: Exception) -> None:
        job = self.job
        with log_context.named(job):
            try:
                self.fail(client_error(error))
            except Exception:
                defect("a request could not be ended")

    def end(
        self,
        status: int,
        outcome: str,
        error: RequestError | None = None,
        answer: AnswerSize = NO_ANSWER,
        model: str = "",
    ) -> None:
        """End the request: it gives back all that it has, leaves the live ones, and its record is made.

        ``status``: what the client got. ``answer``: its size; ``model``: which made it. Another gateway serves and
        records a ``WITHDRAWN`` request.
        """
        self._status = status
        job, dispatch, live_requests = self.job, self._dispatch, self._live_requests
        job.release(answer, model, left=status == CLIENT_LEFT and dispatch.sent > 0)
        dispatch.end(outcome, error.message if error is not None else "")
        live_requests.live.pop(self, None)
        if outcome != WITHDRAWN:
            said = "engine_error" if outcome == "served" and status >= 400 else outcome
            live_requests.ended(job, self._facts(status, said, error, answer), self.address, self.answer_ends)

    def _facts(self, status: int, outcome: str, error: RequestError | None, answer: AnswerSize) -> RequestFacts:
        """What is known of the request, but for its trace."""
        job, attempts = self.job, self._dispatch.attempts
        facts = RequestFacts(attempts, 0.0 if attempts else job.context.clock.now())
        requirements = job.requirements
        facts.id, facts.method, facts.path = job.request_id.decode(), job.method, job.path
        facts.status, facts.outcome = status, outcome
        facts.arrived, facts.bytes_in = job.began, len(job.body)
        if job.upload is not None:
            facts.bytes_in += job.upload.taken
        facts.caller, facts.user = job.caller.name if job.caller is not None else None, job.user
        facts.moves = self.moves
        if requirements is not None:
            facts.asked, facts.stream = requirements.model, requirements.stream
        if error is not None:
            facts.code, facts.message = error.code, error.message
        facts.bytes_out, facts.events, tokens = answer
        if tokens is not None:
            facts.tokens_in, facts.tokens_cached, facts.tokens_out = tokens.input, tokens.cached, tokens.output
            facts.timings = tokens.timings
        return facts
