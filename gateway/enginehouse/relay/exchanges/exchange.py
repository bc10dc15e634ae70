"""One request on its way: from its client to an engine and the answer back."""

from __future__ import annotations

import logging
from typing import Final

from enginehouse.domain.errors import Cancelled, RequestError, UpstreamError
from enginehouse.relay.answers.captured_door import CapturedDoor
from enginehouse.relay.answers.joined_reply import JoinedReply
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.attempts.hedged_dispatch import HedgedDispatch
from enginehouse.relay.door import Caller, Door
from enginehouse.relay.events.stream_check import BrokenStream
from enginehouse.relay.events.stream_form import stream_form
from enginehouse.relay.exchanges.movable_exchange import MovableExchange
from enginehouse.relay.heads.answer_head import AnswerHead
from enginehouse.relay.heads.headers import origin_lines
from enginehouse.relay.jobs.continuation_job import ContinuationJob
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.retrying.retries import Outcome
from enginehouse.telemetry.log_context import log_context
from enginehouse.telemetry.record import Ending

_log = logging.getLogger("enginehouse.relay")
_CLIENT_CLOSED_REQUEST: Final = 499  # nginx's status for its log; the client sees none


class Exchange(MovableExchange):
    """Connects a door, which brings the client's request, with the engine's answer.

    A state machine of callbacks: a plain request creates no coroutine. It commits to an answer with the first byte of
    the body, or the first whole event of a stream. Until then a failure may still be retried. A failure for good is
    answered with its true status, or as the end of a stream that a progress report or an engine has begun.
    """

    __slots__ = ("_message", "_overhead", "_suspects", "_unread")

    def __init__(self, job: Job, door: Door) -> None:
        if job.trace is not None and job.trace.captured is not None:
            door = CapturedDoor(door, job.trace.captured)
        dispatch = Dispatch if job.context.hedging is None else HedgedDispatch
        self._job = job
        self._reply = Reply(door, stream_form(job.path))
        self._dispatch = dispatch(job, self, self._fail)
        self._status = self.moves = 0
        self._held = False
        self.moving = None
        self._suspects: tuple[str, ...] = ()
        self._overhead = 0.0
        self._message = ""
        self._unread = 0

    # --- from the door

    def begin(self, body: bytes, caller: Caller | None = None) -> None:
        """Send the request, which is whole now, on its way. Does nothing after ``cancel``."""
        if self._status:
            return
        job = self._job
        log_context.enter(job.request_id, job.trace.trace_id if job.trace is not None else b"")
        try:
            job.admit(body, caller)
            self._dispatch.start()
        except RequestError as error:
            self._fail(error)
        except Exception:
            _log.exception("a request met a defect of the gateway")
            self.cancel(RequestError("Internal error; see the gateway's log"))
        finally:
            log_context.leave()
        self._overhead = job.context.clock.now() - job.began

    def client_disconnected(self) -> None:
        """End the request, whose answer has no reader any more."""
        if not self._status:
            self._dispatch.cancel()
            self._end(_CLIENT_CLOSED_REQUEST, "client_left")

    def pause(self) -> None:
        """Read no more of the engine's answer until ``resume``: the client is slow."""
        self._reply.paused = True
        self._unread = self._reply.unread()
        if self._dispatch.attempt is not None and not self._held:
            self._dispatch.attempt.pause()

    def resume(self) -> None:
        """Read on."""
        self._reply.paused = False
        if self._dispatch.attempt is not None and not self._held:
            self._dispatch.attempt.resume()

    # --- from operators and the watchdog

    def cancel(self, error: RequestError | None = None) -> None:
        if not self._status:
            self._dispatch.cancel()
            self._fail(error or Cancelled("The request was cancelled by an operator"))

    def check_time(self, now: float) -> None:
        attempt = self._dispatch.attempt
        if attempt is None:
            return
        if attempt.advanced:
            attempt.await_more()
        if now >= attempt.total_deadline:
            self.cancel(attempt.expire_total())
        elif now >= attempt.deadline:
            self._lost(attempt.expire())
        elif now >= attempt.client_deadline:
            self._check_client(attempt)

    def _check_client(self, attempt: Attempt) -> None:
        """End the request if its client has read nothing since the last check: it occupies an engine."""
        unread = self._reply.unread()
        if unread < self._unread:
            self._unread = unread
            attempt.await_client()
            return
        self._dispatch.cancel()
        self._reply.abort()
        self._end(_CLIENT_CLOSED_REQUEST, "client_left")

    # --- from the engine

    def spoiled(self, problem: BrokenStream) -> None:
        self._spoil(self.current_attempt(), problem)

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        attempt = self._dispatch.attempt
        assert attempt is not None
        if head is not None:
            attempt.head = head
        if complete:
            attempt.connection = None
        if self._reply.begun or self._commit(attempt, body, complete):
            if complete:
                self._finish(attempt, body)
            elif body and (problem := self._reply.write(body)) is not None:
                self._spoil(attempt, problem)
            elif attempt.connection is not None:
                attempt.connection.passage = self._reply.passage

    def broken(self, why: str, *, stale: bool) -> None:
        job = self._job
        log_context.enter(job.request_id, job.trace.trace_id if job.trace is not None else b"")
        try:
            if stale:
                self._dispatch.send_anew()
            elif self._dispatch.attempt is not None:
                self._lost(self._dispatch.attempt.broken(why))
        finally:
            log_context.leave()

    def _lost(self, error: RequestError) -> None:
        if self._reply.begun:
            self._broke_off(error)
        else:
            self._dispatch.lost(error)

    def _broke_off(self, error: RequestError) -> None:
        """Have another engine continue the stream, or end it: with the events that are missing, or with the error.

        A stream of which the client has nothing is retried as if it had not begun.
        """
        if self._reply.withdraw():
            self._dispatch.lost(error)
            return
        dispatch, delivered = self._dispatch, self._reply.delivered
        attempt, job = dispatch.attempt, dispatch.job
        ending = None if delivered is None else delivered.ending()
        if ending is not None:
            dispatch.cancel()
            self._reply.end(ending)
            self._end(self._reply.status, "served")
            return
        if delivered is None or attempt is None or (delivered.stays() and delivered.stays_again()):
            dispatch.broke_off(error)
            return
        if not isinstance(job, ContinuationJob):
            job = ContinuationJob(job, delivered, attempt.route, dispatch.retries)
        job.broke(error)
        self._reply = JoinedReply(self._reply, job.joined)
        dispatch.continue_as(job, error)

    def _commit(self, attempt: Attempt, body: bytes, complete: bool) -> bool:
        """Begin the reply with the engine's answer; whether the caller has to pass ``body`` on.

        It need not if it is too early, if the request is sent again instead, or if the answer was passed on as a whole.
        """
        head, route, job = attempt.head, attempt.route, self._job
        chosen = route.chosen
        assert head is not None
        if not (body or complete or job.raw):
            return False
        if isinstance(self._reply, JoinedReply):
            return self._accept(attempt, head, self._reply)
        attempt.answered_at = now = job.context.clock.now()
        self._suspects = job.judge(route, head.status, now - attempt.sent_at, self._suspects)
        if head.status in job.retry_statuses and self._dispatch.retry(Outcome.ANSWERED):
            return False
        origin = origin_lines(chosen.backend, chosen.model, route.reason._value_)  # .value takes 0.2 us in Python 3.10
        if self._reply.status:
            self._reply = self._reply.join(head, origin, chosen.backend)
            if self._reply.paused:
                attempt.pause()
        else:
            theirs = job.client_lines(head.lines, attempt.upstream) if job.raw else head.lines
            overhead = int(self._overhead * 1e6)
            own = b"x-request-id: %s\r\nx-enginehouse-overhead-us: %d\r\n" % (job.request_id, overhead)
            lines = theirs + origin + own
            stream = head.stream and not job.raw
            if complete and not stream and job.method != "HEAD":
                self._reply.answer(head.status, lines, body)
                self._end(head.status, "served")
                return False
            self._reply.begin(head.status, lines, None if stream else head.length, stream)
        if head.stream and head.status == 200 and not job.raw:
            self._reply.keep(job.delivered)
        return True

    def _accept(self, attempt: Attempt, head: AnswerHead, reply: JoinedReply) -> bool:
        """Begin with the answer to a continuation, unless it is no stream."""
        job = self._dispatch.job
        assert isinstance(job, ContinuationJob)
        attempt.answered_at = job.context.clock.now()
        job.judge(attempt.route, head.status, 0.0, ())
        if head.status != 200 or not head.stream:
            self._dispatch.try_otherwise()
            return False
        reply.accept(job.joint)
        if reply.paused:
            attempt.pause()
        return True

    def _finish(self, attempt: Attempt, body: bytes) -> None:
        problem = self._reply.finish(body)
        if problem is not None:
            self._spoil(attempt, problem)
        else:
            self._end(self._reply.status, "served")

    def _spoil(self, attempt: Attempt, problem: BrokenStream) -> None:
        """Have another engine continue a stream that is not whole, or end it with an error."""
        attempt.cancel()
        job = self._dispatch.job
        if problem.differs and isinstance(job, ContinuationJob) and not job.is_joined:
            self._reply.begun = False
            self._dispatch.try_otherwise()
            return
        details = {"error": problem.error} if problem.error is not None else None
        error = UpstreamError(f"Backend '{attempt.upstream.name}' {problem.why}", details=details)
        if problem.is_request:
            self._fail(error)
        else:
            self._broke_off(error)

    # --- the end

    def _fail(self, error: RequestError) -> None:
        job = self._job
        if isinstance(self._dispatch.job, ContinuationJob):
            error = self._dispatch.job.failed(error)
        elif not self._reply.begun:
            job.context.refused(job.request_id, job.requirements, error)
        self._message = error.message
        self._reply.fail(error, job.request_id)
        self._end(error.status, error.code)

    def _end(self, status: int, outcome: str) -> None:
        job = self._job
        self._status = status
        if job.caller is not None:
            job.caller.release()
        self._dispatch.end(outcome)
        if self.moving is not None:
            self.moving()
        sent, events, tokens = self._reply.measure()
        job.context.ended(self, job, Ending(status, outcome, self._message, tokens, sent, events))
