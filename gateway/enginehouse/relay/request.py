"""A request: what is asked, its attempts at engines, and its one end; and all that are live."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Final

from enginehouse.domain.errors import RequestError, shortened
from enginehouse.domain.replica import Reason, Route
from enginehouse.domain.request_facts import RequestFacts
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.ticket import Phase, Ticket
from enginehouse.interfaces.accounting import RequestMeter
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.exporters import SwapRecord, TracedRequest
from enginehouse.relay.attempts.attempt import Attempt, client_error, defect
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.context import RelayContext
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_request import LiveRequest, each_alone
from enginehouse.relay.live.live_state import LiveState
from enginehouse.relay.live.waiting_streams import WaitingStreams
from enginehouse.telemetry.answer_meter import NO_ANSWER, AnswerSize
from enginehouse.telemetry.log_context import log_context
from enginehouse.telemetry.observers import Callbacks, notify
from enginehouse.telemetry.plugin_failures import log_plugin_failure
from enginehouse.telemetry.record_delivery import RecordDelivery
from enginehouse.telemetry.trace_context import MOST_CAPTURED, Trace

CLIENT_LEFT: Final = 499
"""nginx's status for its log, if the client has left: it sees none."""
WITHDRAWN: Final = "withdrawn"
"""The outcome of a request that another gateway serves and reports."""
_EVERY_S: Final = 0.1
"""The seconds between two sweeps over the live requests."""


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

    def _answers_itself(self) -> bool:
        """Whether it has answered a translated request that no engine need get. Raises ``RequestError``."""
        return False

    def begin(self, body: bytes, caller: AdmittedCaller | None = None) -> None:
        """Admit the request, which is whole now, and send it on its way; or end it with an error.

        Does nothing after ``cancel``.
        """
        if self._status:
            return
        job = self.job
        log_context.request, log_context.thread = job, get_ident()  # ``named`` would take longer
        try:
            job.admit(body, caller, self.address)
            if job.translation is None or not self._answers_itself():
                self._dispatch.start()
            self._live_requests.routed += 1
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
        said = "engine_error" if outcome == "served" and status >= 400 else outcome
        costs = NO_ANSWER if said == "engine_error" and answer[2] is None else answer
        job.release(costs, model, left=status == CLIENT_LEFT and dispatch.sent > 0)
        dispatch.sender = None  # otherwise the cycle of the two waits for the garbage collector
        dispatch.leave(outcome, error.message if error is not None else "")
        live_requests.live.pop(self, None)
        if outcome != WITHDRAWN:
            live_requests.ended(self, self._facts(status, said, error, answer))

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


class LiveRequests:
    """Knows the live requests, has them check their time limits every 100 ms, and reports each that has ended.

    One sweep over all requests is far cheaper than timers that are set and cancelled for each piece of an answer. A
    request that raises in it fails alone. The sweep also counts the requests that were routed for the budget of
    retries, tells observers of waiting streams, lets middleware do what is due, and has the waiting room plan: a
    slot may be free for a reason that no queue reports, such as a backend's health.

    - ``live``: those that have not ended, the oldest first, each with a number that no later one gets.
    - ``waiting``: tells observers of streams that wait.
    - ``delivery``: brings records to observers.
    - ``at_end``: is called with the facts of each request that has ended, as observers want it.
    - ``on_ended``: is called last with each job that has ended, if anybody wants that.
    - ``routed``: how many were sent on their way since the last sweep: a refused one adds nothing to the budget.
    """

    def __init__(self, context: RelayContext, delivery: RecordDelivery) -> None:
        self.live: dict[LiveRequest, int] = {}
        self.at_end: Callbacks = ()
        self.on_ended: Callable[[Job, RequestFacts], None] | None = None
        self.delivery = delivery
        self._observed = delivery.callbacks
        self._context = context
        self.waiting = WaitingStreams(context.queues, context.waiting_room)
        self.routed = 0
        self._begun = 0
        self._next_sweep: asyncio.TimerHandle | None = None

    def begin(self, request: LiveRequest) -> None:
        """Watch ``request`` until it has ended."""
        self._begun += 1
        self.live[request] = self._begun
        if self._next_sweep is None:
            self._next_sweep = asyncio.get_running_loop().call_later(_EVERY_S, self._sweep)

    def stop(self) -> None:
        """Watch no request any more."""
        if self._next_sweep is not None:
            self._next_sweep.cancel()
            self._next_sweep = None

    def _sweep(self) -> None:
        self._next_sweep = None
        context, live = self._context, list(self.live)
        now = context.clock.now()
        if live:  # first: whatever happens below, the next sweep comes
            self._next_sweep = asyncio.get_running_loop().call_later(_EVERY_S, self._sweep)
        context.budget.count(now, self.routed)
        self.routed = 0
        each_alone(live, lambda request: request.check_time(now))
        for each in (context.translation, context.interception):
            if each is not None:
                each.check_time(now)
        context.waiting_room.tick()
        self.waiting.tell(self.live, now)

    def ended(self, request: Request, facts: RequestFacts) -> None:
        """Report ``request``, which has left the live ones."""
        job, context, tracer = request.job, self._context, self._context.tracer
        facts.time = at = context.clock.epoch()
        if job.trace is None and tracer is not None and tracer.keeps(facts.ended - job.began, facts.status):
            job.trace = tracer.begin_late(job.headers)
        trace = job.trace
        if trace is not None:
            facts.trace_id = trace.trace_id.decode()
        if facts.attempts:
            context.counters.add(facts)
        else:
            context.counters.end_unrouted(facts.status)
        if trace is not None and tracer is not None:
            parameters = b"" if job.raw else tracer.parameters(job.body)
            tracer.add(traced_request(job, trace, facts.record(), parameters, request.answer_ends()))
        if self.at_end:
            notify(self.at_end, facts)
        context.activity.add(at, facts, job.headers, request.address)
        if context.usage is not None:
            self._add_usage(context.usage, facts, job)
        if self._observed:
            self.delivery.add(facts.record())
        if self.on_ended is not None:
            self.on_ended(job, facts)

    def _add_usage(self, usage: RequestMeter, facts: RequestFacts, job: Job) -> None:
        """Add the request to what its caller has used."""
        needs, model = job.requirements, facts.model
        if model is None:
            asked = facts.asked or ""
            model = asked if asked and self._context.fleet.snapshot.candidates(asked) else ""
        try:
            usage.add(facts, model, needs.estimated_tokens if needs is not None else 0)
        except BaseException as error:
            log_plugin_failure(self._context.counted_by, "failed to add a request to the usage", error)


def traced_request(
    job: Job, trace: Trace, record: RequestRecord, parameters: bytes, ends: tuple[bytes, bytes]
) -> TracedRequest:
    """The request of ``job``, which has ended, with its ``trace``; ``ends``: of the answer."""
    parent, link, captured = trace.parent, trace.link, trace.captured
    return TracedRequest(
        trace.trace_id,
        trace.root,
        parent.span_id if parent is not None else b"",
        (link.trace_id, link.span_id) if link is not None else (b"", b""),
        trace.state,
        record,
        tuple([_address(job, attempt.backend) for attempt in record.attempts]),
        swaps_of(record, job.context.counters.last_swaps),
        job.body if captured is not None and len(job.body) <= MOST_CAPTURED else b"",
        bytes(captured) if captured is not None else b"",
        _known_model(job, record),
        trace.refused,
        parameters,
        (b"", b"") if job.raw else ends,
    )


def _known_model(job: Job, record: RequestRecord) -> str:
    """The model that the client asked for, or else the one that served it; empty if the gateway knows neither."""
    context, asked = job.context, record.asked
    if asked is not None and (context.router.others.names(asked) or context.fleet.snapshot.candidates(asked)):
        return shortened(asked)
    return shortened(record.model or "")


def _address(job: Job, backend: str) -> str:
    """Its URL; empty if a reload has removed the backend, or its engine does not run."""
    upstream = job.context.upstreams.get(backend)
    return upstream.pool.origin.url if upstream is not None else ""


def swaps_of(record: RequestRecord, swaps: Iterable[SwapRecord]) -> tuple[SwapRecord, ...]:
    """Those of the last ``swaps`` that the request waited for."""
    waited = [attempt.replica for attempt in record.attempts if attempt.queued]
    return tuple([swap for swap in swaps if swap.target in waited]) if waited else ()
