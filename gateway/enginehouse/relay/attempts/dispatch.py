"""Takes a job to an engine, and to another one if the first fails it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from enginehouse.domain.errors import (
    CannotContinue,
    InvalidRequest,
    QueueFull,
    RequestError,
    UpstreamError,
    UpstreamTimeout,
)
from enginehouse.domain.replica import Candidate, Route
from enginehouse.domain.request_facts import AttemptFacts
from enginehouse.domain.ticket import Phase
from enginehouse.relay.answers.engine_error import is_too_long
from enginehouse.relay.attempts.attempt import NEVER, Attempt, client_error
from enginehouse.relay.attempts.waiting_place import WaitingPlace
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.jobs.pairs import prepare_pair
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.retries import (
    FailedAttempt,
    Otherwise,
    Outcome,
    RetryDecision,
    RetryState,
    SendAgain,
    decide,
)
from enginehouse.telemetry.log_context import log_context
from enginehouse.telemetry.observers import notify

_SPENT: Final = ". It was not sent once more: routing.retry_budget is spent"
_UNTRIED: Final = RetryState()


class AttemptSender(Protocol):
    """A request, as its dispatch sees it."""

    def send_attempt(self, attempt: Attempt, reuse: bool) -> None:
        """Send the dispatch's job to the engine of ``attempt``; ``reuse``: a kept connection will do."""

    def fail(self, error: RequestError) -> None:
        """Answer with ``error``: the job is sent no more."""


class Dispatch:
    """Routes a job, waits for a slot where there are limits, and has ``sender`` send it.

    If its engine fails it, the job is sent once more, as far as ``decide`` says so.

    ``attempt``: the current one. ``attempts``: those that have ended, in order. ``state``: what has failed so far.
    ``job``: the rest to be served. ``place``: in the waiting room, set while it waits for its model, and so has no
    attempt. ``sender``: ``None`` once the request has ended.
    """

    def __init__(self, job: Job, sender: AttemptSender) -> None:
        self.job = job
        self.sender: AttemptSender | None = sender
        self.state = _UNTRIED
        self.attempt: Attempt | None = None
        self.attempts: list[AttemptFacts] = []
        self.place: WaitingPlace | None = None

    @property
    def sent(self) -> int:
        """How many attempts have reached an engine, or may have."""
        current = self.attempt is not None and self.attempt.sent_at > 0
        return sum([each.sent > 0 for each in self.attempts]) + current

    @property
    def phase(self) -> Phase:
        """The job's phase on its way to an engine."""
        if self.attempt is None:
            return Phase.ROUTING if self.place is None else Phase.QUEUED
        slot = self.attempt.slot
        return Phase.SERVING if slot is None or slot.is_granted else Phase.QUEUED

    def current(self) -> Attempt:
        """The current attempt, of which there is one."""
        assert self.attempt is not None
        return self.attempt

    def start(self) -> None:
        """Send the job for the first time. Raises ``RequestError`` if it cannot be sent anywhere."""
        job = self.job
        route = job.route(())
        if len(route.attempted) > 1:
            job.context.router.count_turn(route)
        if route.waits:
            self._wait(route, None)
        else:
            self._begin(route, job.body_for(route), None)

    def replace(self, attempt: Attempt, outcome: str, why: str = "") -> None:
        """Continue with ``attempt``. The current one ends with ``outcome``; ``why``: the message of its error."""
        self.leave(outcome, why)
        self.attempt = attempt

    def cancel(self) -> None:
        """Abort the current attempt, without another call of ``sender``."""
        if self.attempt is not None:
            self.attempt.cancel()

    def leave(self, outcome: str, why: str = "") -> None:
        """Leave the waiting room, or end the current attempt. A request that waits owns no attempt."""
        place, self.place = self.place, None
        if place is not None:
            self.job.context.waiting_room.leave(place.ticket)
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            self.attempts.append(attempt.end(outcome, why))

    # --- from an engine that fails the job

    def retry(self, outcome: Outcome) -> bool:
        """Send the job again because the current attempt had this ``outcome``; whether that was the decision."""
        return self._begin_again(self._decide(outcome), "answered")

    def goes_elsewhere(self, answer: bytes) -> bool:
        """Send the job again if ``answer``, an error, says that its engine cannot serve it now; whether it did."""
        head, job = self.current().head, self.job
        assert head is not None
        return self._loads_again(head.status, answer) or (
            not job.raw and self._finds_longer_context(head.status, answer)
        )

    def _loads_again(self, status: int, answer: bytes) -> bool:
        """Load the model again if ``answer`` says that it is not loaded, and send the job to it; whether that is so.

        Somebody else has unloaded it. The server did nothing for the job.
        """
        attempt = self.current()
        slot = attempt.slot
        if slot is None or not slot.launched or not self.job.loads:
            return False
        if not self.job.context.is_not_loaded(attempt.upstream.name, status, answer):
            return False
        slot.report_unloaded()
        attempt.find_out(self._send_back)
        return True

    def _finds_longer_context(self, status: int, answer: bytes) -> bool:
        """Send the job to a replica with a longer context if ``answer`` says that it is too long; whether that is so.

        Engines count a prompt exactly, the gateway estimates it.
        """
        if not is_too_long(status, answer):
            return False
        short = self.job.too_short(self.current().route.chosen)
        return self._begin_again(self._decide(Outcome.TOO_LONG, short), "answered")

    def lost(self, error: RequestError) -> None:
        """Retry the job, which its engine failed with ``error`` before it began to answer.

        A shortage or a defect of the gateway itself counts against no engine, and leads to no retry.
        """
        if not isinstance(error, (UpstreamError, UpstreamTimeout)):
            self._carry_out(Otherwise.FAIL, error)
            return
        decision = self._decide(Outcome.of_engine(error))
        if decision is Otherwise.FIND_OUT:
            self.current().find_out(partial(self._found_out, error))
        else:
            self.blame(error)
            self._carry_out(decision, error)

    def prompt_lost(self, error: RequestError) -> None:
        """Retry the job, whose prompt another engine failed to read with ``error``, unless the answer has begun.

        A request that this engine refuses as wrong is not sent again. The next way to continue a stream may be right.
        """
        attempt = self.attempt
        if attempt is None or attempt.answered_at:
            return
        wrong = isinstance(error, InvalidRequest)
        if wrong and self.job.continues:
            self.try_otherwise()
            return
        attempt.cancel()
        self._carry_out(Otherwise.FAIL if wrong else self._decide(Outcome.PROMPT_LOST), error)

    def blame(self, error: RequestError) -> None:
        """Count ``error`` against the engine of the current attempt, unless an operator unloads its model."""
        attempt = self.current()
        if attempt.slot is None or not attempt.slot.unloaded:
            self.job.context.fleet.failed(attempt.upstream.name, error.message)

    def try_otherwise(self) -> None:
        """Ask the same engine once more, in the job's next way."""
        attempt = self.current()
        attempt.cancel()
        attempt.head = None
        attempt.answered_at = 0.0
        self._send()

    def send_anew(self) -> None:
        """Send the job once more, on a new connection: the kept one was stale, which is not a failure of the engine."""
        attempt, state = self.current(), self.state
        self.state = state._replace(stale=(*state.stale, attempt.route.chosen.replica))
        self.job.context.counters.stale[attempt.upstream.name] += 1
        self._send(prepared=True)

    def exclude(self, attempt: Attempt) -> None:
        """Count the replica of ``attempt`` among those that failed the job."""
        self.state = self.state._replace(failed=(*self.state.failed, attempt.route.chosen.replica))

    # --- from the waiting room

    def look(self) -> Route | None:
        job, place = self.job, self.place
        if place is None:
            return None
        try:
            return job.reroute(place.route, self.state.failed)
        except Exception as error:
            with log_context.named(job):
                raise client_error(error) from None

    def bind(self, route: Route) -> None:
        self._unwait(partial(self._bound, route))

    def start_over(self) -> None:
        self._unwait(self._start_over)

    def refuse(self, error: RequestError) -> None:
        self._unwait(lambda _: self._fail(error))

    def _unwait(self, step: Callable[[WaitingPlace], None]) -> None:
        """Take ``step``, which the place in the waiting room was kept for."""
        place, self.place = self.place, None
        if place is not None:
            self._act(partial(step, place))

    def _act(self, step: Callable[[], None]) -> None:
        """Take ``step`` in the name of this request, which fails if it raises: it runs at an event of another one."""
        job = self.job
        with log_context.named(job):
            try:
                step()
            except Exception as error:
                self._fail(client_error(error))

    def _bound(self, route: Route, place: WaitingPlace) -> None:
        self._begin(route, self.job.body_for(route), place.ticket.arrived, place.since)

    def _start_over(self, place: WaitingPlace) -> None:
        """Find another route, for the model is lost."""
        route = self.job.route(self.state.failed)
        self._follow(route, b"" if route.waits else self.job.body_for(route), place.ticket.arrived, place.since)

    # --- from the queue

    def granted(self) -> None:
        self._act(self._granted)

    def _granted(self) -> None:
        self.current().granted()
        if self.job.context.turns is not None:
            self.job.turn_granted()
        self._send()

    def rejected(self, error: RequestError) -> None:
        self._act(partial(self._rejected, error))

    def _rejected(self, error: RequestError) -> None:
        slot = self.current().slot
        joined_load = slot is not None and slot.joined_load
        self._carry_out(self._decide(Outcome.of_queue(error, joined_load)), error)

    # --- an attempt begins

    def _fail(self, error: RequestError) -> None:
        assert self.sender is not None
        self.sender.fail(error)

    def _follow(self, route: Route, body: bytes, waiting_since: float | None, routed_at: float | None = None) -> None:
        """Begin an attempt along ``route``, or wait for its model. Raises ``QueueFull``."""
        if route.waits:
            self._wait(route, waiting_since)
        else:
            self._begin(route, body, waiting_since, routed_at)

    def _wait(self, route: Route, arrived: float | None) -> None:
        """Wait for the model of ``route``; or go to another one, if too many wait for it. Raises ``QueueFull``."""
        job = self.job
        self.place = place = WaitingPlace.of(job, route, arrived)
        try:
            job.context.waiting_room.join(place.ticket, self)  # which may bind it at once
        except QueueFull:
            self.place = None
            found = job.find_route((*self.state.failed, *place.replicas(job)))
            if found is None or found[0].waits:
                raise
            self._begin(*found, arrived)

    def _begin(self, route: Route, body: bytes, waiting_since: float | None, routed_at: float | None = None) -> None:
        job, chosen = self.job, route.chosen
        context = job.context
        if job.trace is not None:
            job.trace_lines = job.trace.lines(len(self.attempts))
        upstream = context.upstreams[chosen.backend]
        queue = None if chosen.proxied else context.queues.get(chosen.backend)
        self.carry_out(route)
        # In a queue, the time for all of the answer does not run yet: ``granted`` starts it.
        self.attempt = attempt = Attempt(route, upstream, job.began if queue is None else NEVER, body)
        if routed_at is not None:
            attempt.began = routed_at
        if queue is None:
            self._send()
        else:
            arrived = queue.now() if waiting_since is None else waiting_since
            attempt.slot = slot = QueueSlot(self, queue, job.ticket(chosen.replica, arrived))
            slot.keep_alive = job.keep_alive
            slot.take()

    def carry_out(self, route: Route) -> None:
        """Note that the job takes ``route`` now. Raises ``PluginFailed``."""
        job, context, requirements = self.job, self.job.context, self.job.requirements
        assert requirements is not None
        context.router.carry_out(requirements, route)
        context.decisions.routed(job.request_id, requirements.caller, route)
        if context.on_routed:
            notify(context.on_routed, job.request_id.decode(), requirements, route)

    def _send(self, *, prepared: bool = False) -> None:
        """Have the current attempt sent; first, a job that ``prepares`` is ``prepared``."""
        attempt, sender, state = self.attempt, self.sender, self.state
        assert attempt is not None
        assert sender is not None
        if self.job.prepares and not prepared:
            attempt.work(self._prepare, self._prepared)
            return
        again = state is not _UNTRIED and state.asked_twice(attempt.route.chosen.replica)
        sender.send_attempt(attempt, self.job.repeatable and not again)

    async def _prepare(self, attempt: Attempt) -> None:
        job, route = self.job, attempt.route
        attempt.body = await job.prepare(route)
        if route.prefill is not None:
            attempt.body, attempt.prompt = await prepare_pair(job, route, attempt.body, self.prompt_lost)

    def _prepared(self, error: RequestError | None) -> None:
        attempt = self.current()
        if error is not None:
            lost = attempt.route.prefill is not None and not isinstance(error, CannotContinue)
            self._carry_out(self._decide(Outcome.PROMPT_LOST if lost else Outcome.UNFIT), error)
            return
        self._send(prepared=True)

    # --- what follows a failure

    def _decide(self, outcome: Outcome, unfit: tuple[str, ...] = ()) -> RetryDecision:
        """Decide about the job, whose attempt had this ``outcome``. ``unfit``: replicas that cannot serve it either."""
        attempt, job = self.current(), self.job
        route, context = attempt.route, job.context
        culprit = route.prefill if outcome is Outcome.PROMPT_LOST and route.prefill is not None else route.chosen
        failed = FailedAttempt(
            outcome,
            culprit.replica,
            sent=bool(attempt.sent_at),
            repeatable=job.repeatable,
            launched=attempt.slot is not None and attempt.slot.launched,
        )
        in_budget = context.budget.has_room(context.clock.now())
        find = job.find_route if not unfit else lambda failed: job.find_route((*failed, *unfit))
        decision = decide(failed, self.state, job.max_retries, find, in_budget=in_budget)
        if decision is Otherwise.SPENT:
            context.counters.retries_refused["continuation" if job.continues else "retry"] += 1
        return decision

    def _found_out(self, error: RequestError, exited: bool) -> None:
        decision = self._decide(Outcome.EXITED) if exited else Otherwise.FAIL
        if decision is Otherwise.FAIL:
            self.blame(error)
        self._carry_out(decision, error)

    def _send_back(self, exited: bool) -> None:
        name = self.current().upstream.name
        error = UpstreamError(f"Backend '{name}' keeps saying that its model is not loaded")
        self._carry_out(self._decide(Outcome.NOT_LOADED), error)

    def _carry_out(self, decision: RetryDecision, error: RequestError) -> None:
        if self._begin_again(decision, error.code, error.message):
            return
        if decision is Otherwise.SPENT:
            error.message += _SPENT
        self._fail(error)

    def _begin_again(self, decision: RetryDecision, outcome: str, why: str = "") -> bool:
        """Begin the attempt of ``decision``, if it is one. The current attempt ends with ``outcome``."""
        if not isinstance(decision, SendAgain):
            return False
        attempt, context, before = self.current(), self.job.context, self.state
        waiting_since = attempt.waiting_since
        if attempt.sent_at:
            context.budget.take(context.clock.now())
        self.leave(outcome, why)
        self.state = state = decision.state
        try:
            self._follow(decision.route, decision.body, waiting_since)
        except RequestError as error:
            self._fail(error)
        if state.retries > before.retries and not self.job.continues:
            context.counters.retries[_at_fault(attempt.route, state.failed).backend] += 1
        return True


def _at_fault(route: Route, failed: tuple[str, ...]) -> Candidate:
    """The engine of ``route`` that ``failed``."""
    prefill = route.prefill
    return prefill if prefill is not None and prefill.replica in failed else route.chosen
