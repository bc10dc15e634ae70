"""Takes a job to an engine, and to another one if the first fails it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from enginehouse.domain.errors import CannotContinue, InvalidRequest, Overloaded, RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Phase
from enginehouse.relay.attempts.attempt import NEVER, Attempt
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.retrying.retries import (
    FailedAttempt,
    Otherwise,
    Outcome,
    RetryDecision,
    RetryState,
    SendAgain,
    decide,
)
from enginehouse.relay.upstream.connection import Receiver
from enginehouse.telemetry.record import AttemptRecord

_UNTRIED: Final = RetryState()
_SPENT: Final = ". It was not sent once more: routing.retry_budget is spent"


class Dispatch:
    """Routes a job, waits for a queue slot where the backend has a queue, sends the job, and retries it.

    ``receiver`` gets the answer; ``fail`` gets the error of a job that no engine answers. ``attempt``: the current one.
    ``attempts``: those that have ended, in order. ``job``: the rest to be served.
    """

    __slots__ = ("_fail", "_receiver", "_state", "attempt", "attempts", "job")

    def __init__(self, job: Job, receiver: Receiver, fail: Callable[[RequestError], None]) -> None:
        self.job = job
        self._receiver: Receiver | None = receiver
        self._fail: Callable[[RequestError], None] | None = fail
        self._state = _UNTRIED
        self.attempt: Attempt | None = None
        self.attempts: list[AttemptRecord] = []

    @property
    def retries(self) -> int:
        """How often the job was sent again."""
        return self._state.retries

    @property
    def phase(self) -> Phase:
        """The job's phase on its way to an engine."""
        if self.attempt is None:
            return Phase.ROUTING
        slot = self.attempt.slot
        return Phase.SERVING if slot is None or slot.is_granted else Phase.QUEUED

    def start(self) -> None:
        """Send the job for the first time. Raises ``RequestError`` if it cannot be sent anywhere."""
        job = self.job
        route = job.route(())
        job.context.budget.count(job.began)
        self._send(route, job.body_for(route), None)

    def retry(self, outcome: Outcome) -> bool:
        """Send the job again because the current attempt had this ``outcome``; whether that was the decision."""
        decision = self._decide(outcome)
        if isinstance(decision, SendAgain):
            self._send_again(decision, "answered")
            return True
        return False

    def lost(self, error: RequestError) -> None:
        """Retry the job, which its engine failed with ``error`` before it began to answer.

        A shortage of the gateway itself counts against no engine, and leads to no retry.
        """
        if isinstance(error, Overloaded):
            self._carry_out(Otherwise.FAIL, error)
            return
        decision = self._decide(Outcome.of_engine(error))
        if decision is Otherwise.FIND_OUT:
            self._current().find_out(partial(self._found_out, error))
        else:
            self._blame(error)
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

    def broke_off(self, error: RequestError) -> None:
        """Fail the job with ``error``: its engine broke off in the middle of the answer."""
        self._blame(error)
        self._carry_out(Otherwise.FAIL, error)

    def continue_as(self, job: Job, error: RequestError) -> None:
        """Continue with ``job``, the rest of an answer that the engine broke off with ``error``."""
        self.job = job
        self.lost(error)

    def try_otherwise(self) -> None:
        """Ask the same engine once more, in the job's next way."""
        attempt = self._current()
        attempt.cancel()
        attempt.head = None
        attempt.answered_at = 0.0
        self._prepare()

    def send(self) -> None:
        """Send the job to the engine of the current attempt."""
        if self.job.prepares:
            self._prepare()
        else:
            self._send_now()

    def _prepare(self) -> None:
        attempt = self._current()
        attempt.prepare(self.job.prepare, self._prepared)

    def _prepared(self, error: RequestError | None) -> None:
        attempt = self._current()
        if error is not None:
            lost = attempt.route.prefill is not None and not isinstance(error, CannotContinue)
            self._carry_out(self._decide(Outcome.PROMPT_LOST if lost else Outcome.UNFIT), error)
            return
        if (prompt := self.job.prompt) is not None:
            attempt.prompt = prompt
            prompt.watch(self.prompt_lost)
        self._send_now()

    def _send_now(self) -> None:
        attempt, job, receiver = self.attempt, self.job, self._receiver
        assert attempt is not None
        assert receiver is not None
        reuse = job.repeatable and (
            self._state is _UNTRIED or not self._state.asked_twice(attempt.route.chosen.replica)
        )
        request = job.request(attempt.upstream, attempt.body)
        attempt.send(receiver, request, reuse=reuse, upload=None if reuse else job.upload)

    def send_anew(self) -> None:
        """Send the job once more, on a new connection: the kept one was stale, which is no failure of the engine."""
        attempt, state = self._current(), self._state
        self._state = state._replace(stale=(*state.stale, attempt.route.chosen.replica))
        self.job.context.counters.stale[attempt.upstream.name] += 1
        self._send_now()

    def replace(self, attempt: Attempt) -> None:
        """Continue with ``attempt``, to which the stream was moved."""
        left = self._current()
        self.attempts.append(left.record("moved"))
        left.cancel()
        left.release()
        self.attempt = attempt

    def cancel(self) -> None:
        """Abort the current attempt, without another call of ``receiver`` or ``fail``."""
        if self.attempt is not None:
            self.attempt.cancel()

    def end(self, outcome: str) -> None:
        """End the current attempt with ``outcome``, and release what it holds. Nothing may follow."""
        self._receiver = self._fail = None  # otherwise the cycle of the two waits for the garbage collector
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            self.attempts.append(attempt.record(outcome))
            attempt.release()

    # --- from the queue

    def granted(self) -> None:
        self._current().granted()
        self.send()

    def rejected(self, error: RequestError) -> None:
        slot = self._current().slot
        joined_load = slot is not None and slot.joined_load
        self._carry_out(self._decide(Outcome.of_queue(error, joined_load)), error)

    # --- inside

    def _send(self, route: Route, body: bytes, waiting_since: float | None) -> None:
        job, chosen = self.job, route.chosen
        context, requirements = job.context, job.requirements
        assert requirements is not None
        if job.trace is not None:
            job.trace.attempt = len(self.attempts)
        upstream, queue = context.upstreams[chosen.backend], context.queues.get(chosen.backend)
        self.attempt = attempt = Attempt(route, upstream, job.began if queue is None else NEVER, body)
        context.routed(job.request_id, requirements, route)
        if queue is None:
            self.send()
        else:
            attempt.slot = slot = QueueSlot(self, queue, job.request_id, chosen.replica, job.priority, waiting_since)
            slot.take()

    def _send_again(self, decision: SendAgain, outcome: str) -> None:
        attempt = self._current()
        self.attempts.append(attempt.record(outcome))
        waiting_since = attempt.waiting_since
        if attempt.sent_at:
            self.job.context.budget.take(self.job.context.clock.now())
        attempt.cancel()
        attempt.release()
        counts = decision.state.retries > self._state.retries and not self.job.continues
        self._state = decision.state
        self._send(decision.route, decision.body, waiting_since)
        if counts:
            self.job.context.retried(_at_fault(attempt.route, self._state.failed).backend)

    def _decide(self, outcome: Outcome) -> RetryDecision:
        attempt, job = self._current(), self.job
        route = attempt.route
        culprit = route.prefill if outcome is Outcome.PROMPT_LOST and route.prefill is not None else route.chosen
        failed = FailedAttempt(
            outcome,
            culprit.replica,
            sent=bool(attempt.sent_at),
            repeatable=job.repeatable,
            launched=attempt.slot is not None and attempt.slot.launched,
        )
        in_budget = job.context.budget.has_room(self.job.context.clock.now())
        decision = decide(failed, self._state, job.max_retries, job.find_route, in_budget=in_budget)
        if decision is Otherwise.SPENT:
            job.context.counters.retries_refused["continuation" if job.continues else "retry"] += 1
        return decision

    def _carry_out(self, decision: RetryDecision, error: RequestError) -> None:
        if isinstance(decision, SendAgain):
            self._send_again(decision, error.code)
            return
        if decision is Otherwise.SPENT:
            error.message += _SPENT
        assert self._fail is not None
        self._fail(error)

    def _found_out(self, error: RequestError, exited: bool) -> None:
        decision = self._decide(Outcome.EXITED) if exited else Otherwise.FAIL
        if decision is Otherwise.FAIL:
            self._blame(error)
        self._carry_out(decision, error)

    def _blame(self, error: RequestError) -> None:
        self.job.context.fleet.failed(self._current().upstream.name, error.message)

    def _current(self) -> Attempt:
        assert self.attempt is not None
        return self.attempt


def _at_fault(route: Route, failed: tuple[str, ...]) -> Candidate:
    """The engine of ``route`` that ``failed``."""
    prefill = route.prefill
    return prefill if prefill is not None and prefill.replica in failed else route.chosen
