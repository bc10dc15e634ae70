"""Takes a job to another engine if the first fails it."""

from __future__ import annotations

from functools import partial
from typing import Final

from enginehouse.domain.errors import CannotContinue, InvalidRequest, RequestError, UpstreamError, UpstreamTimeout
from enginehouse.domain.replica import Candidate
from enginehouse.domain.route import Route
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.attempts.routed_job import RoutedJob
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.retrying.retries import FailedAttempt, Otherwise, Outcome, RetryDecision, SendAgain, decide
from enginehouse.relay.retrying.too_long import is_too_long

_SPENT: Final = ". It was not sent once more: routing.retry_budget is spent"


class Dispatch(RoutedJob):
    """Sends a job, and once more when its engine fails it, as far as ``decide`` says so."""

    def retry(self, outcome: Outcome) -> bool:
        """Send the job again because the current attempt had this ``outcome``; whether that was the decision."""
        return self._begin_again(self._decide(outcome), "answered")

    def goes_elsewhere(self, answer: bytes) -> bool:
        """Send the job again if ``answer`` says that its engine cannot serve it now; whether that is done."""
        head, job = self.current().head, self.job
        if head is None or head.status < 400:
            return False
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

    def broke_off(self, error: RequestError) -> None:
        """Fail the job with ``error``: its engine broke off in the middle of the answer."""
        self.blame(error)
        self._carry_out(Otherwise.FAIL, error)

    def blame(self, error: RequestError) -> None:
        """Count ``error`` against the engine of the current attempt, unless an operator unloads its model."""
        attempt = self.current()
        if attempt.slot is None or not attempt.slot.unloaded:
            self.job.context.fleet.failed(attempt.upstream.name, error.message)

    def continue_as(self, job: Job, error: RequestError) -> None:
        """Continue with ``job``, the rest of an answer that the engine broke off with ``error``."""
        self.job = job
        self.lost(error)

    def try_otherwise(self) -> None:
        """Ask the same engine once more, in the job's next way."""
        attempt = self.current()
        attempt.cancel()
        attempt.head = None
        attempt.answered_at = 0.0
        self._send()

    def send_anew(self) -> None:
        """Send the job once more, on a new connection: the kept one was stale, which is not a failure of the engine."""
        attempt, state = self.current(), self._state
        self._state = state._replace(stale=(*state.stale, attempt.route.chosen.replica))
        self.job.context.counters.stale[attempt.upstream.name] += 1
        self._send_now()

    def exclude(self, attempt: Attempt) -> None:
        """Count the replica of ``attempt`` among those that failed the job."""
        self._state = self._state._replace(failed=(*self._state.failed, attempt.route.chosen.replica))

    def _rejected(self, error: RequestError) -> None:
        slot = self.current().slot
        joined_load = slot is not None and slot.joined_load
        self._carry_out(self._decide(Outcome.of_queue(error, joined_load)), error)

    # --- inside

    def _prepared(self, error: RequestError | None) -> None:
        attempt = self.current()
        if error is not None:
            lost = attempt.route.prefill is not None and not isinstance(error, CannotContinue)
            self._carry_out(self._decide(Outcome.PROMPT_LOST if lost else Outcome.UNFIT), error)
            return
        if (prompt := self.job.prompt) is not None:
            attempt.prompt = prompt
            prompt.watch(self.prompt_lost)
        self._send_now()

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
        decision = decide(failed, self._state, job.max_retries, find, in_budget=in_budget)
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
        attempt, context, before = self.current(), self.job.context, self._state
        waiting_since = attempt.waiting_since
        if attempt.sent_at:
            context.budget.take(context.clock.now())
        self.leave(outcome, why)
        self._state = state = decision.state
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
