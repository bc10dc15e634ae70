"""One request on its way: from its client to an engine and the answer back."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from enginehouse.domain.errors import (
    Cancelled,
    CannotContinue,
    RequestError,
    UpstreamError,
)
from enginehouse.domain.replica import Candidate
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Phase
from enginehouse.relay.answers.captured_door import CapturedDoor
from enginehouse.relay.answers.engine_error import context_error, readable_error
from enginehouse.relay.answers.joined_reply import JoinedReply
from enginehouse.relay.answers.json_answer import JsonInPieces, why_misfit, why_unfit
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.attempts.hedge import Hedge
from enginehouse.relay.continuation.saved_stream import SavedStream
from enginehouse.relay.continuation.stream_history import StreamHistory
from enginehouse.relay.door import Caller, Door
from enginehouse.relay.engine_memory import EngineShare
from enginehouse.relay.events.stream_check import BrokenStream
from enginehouse.relay.events.stream_form import stream_form
from enginehouse.relay.exchanges.movable_exchange import MovableExchange
from enginehouse.relay.heads.answer_head import AnswerHead
from enginehouse.relay.heads.behalf import ATTEMPTS
from enginehouse.relay.heads.headers import origin_lines
from enginehouse.relay.jobs.continuation_job import ContinuationJob
from enginehouse.relay.jobs.job import REFUSALS, Job, Suspects
from enginehouse.relay.live.endings import Endings
from enginehouse.relay.live.moved_stream import MovedStream
from enginehouse.relay.moves.move import Move
from enginehouse.relay.retrying.retries import Outcome
from enginehouse.relay.retrying.retry_after import SAID_WITH
from enginehouse.telemetry.log_context import log_context

_WITHDRAWN: Final = "withdrawn"
_CLIENT_CLOSED_REQUEST: Final = 499  # nginx's status for its log; the client sees none


class _FirstRefusal(NamedTuple):
    """The first refusal of an engine: the client gets it if no other engine says otherwise."""

    head: AnswerHead
    body: bytes
    route: Route
    share: EngineShare


class Exchange(MovableExchange):
    """Connects a door, which brings the client's request, with the engine's answer.

    A state machine of callbacks: a plain request creates no coroutine. It commits to an answer with the first byte of
    the body, or the first whole event of a stream. Until then a failure may still be retried. A failure for good is
    answered with its true status, or as the end of a stream that a progress report or an engine has begun.
    """

    __slots__ = ("_endings", "_hedge", "_joined", "_overhead", "_refusal", "_suspects", "_unread")

    def __init__(self, job: Job, door: Door, endings: Endings) -> None:
        if job.trace is not None and job.trace.captured is not None:
            door = CapturedDoor(door, job.trace.captured)
        hedging = job.context.hedging
        self._job = job
        self._endings = endings
        self._reply = Reply(door, stream_form(job.path))
        self._dispatch = dispatch = Dispatch(job, self)
        self._hedge = Hedge(dispatch, self, hedging) if hedging is not None else None
        self._status = self.moves = 0
        self._held = False
        self.moving = None
        self._rest = None
        self._joined: JoinedReply | None = None
        self._suspects: Suspects = ()
        self._refusal: _FirstRefusal | None = None
        self._overhead = 0.0
        self._unread = 0

    @property
    def address(self) -> str:
        return self._reply.door.address

    # --- from the door

    def begin(self, body: bytes, caller: Caller | None = None) -> None:
        """Send the request, which is whole now, on its way. Does nothing after ``cancel``."""
        if self._status:
            return
        job = self._job
        self._start(body, caller)
        self._overhead = job.context.clock.now() - job.began

    def _admit(self, body: bytes, caller: Caller | None) -> None:
        self._job.admit(body, caller)
        addresses = self._job.context.addresses
        if addresses is not None:
            self._job.admit_address(addresses, self.address)

    def client_disconnected(self) -> None:
        """End the request, whose answer has no reader any more."""
        if not self._status:
            self._dispatch.cancel()
            self._end(_CLIENT_CLOSED_REQUEST, "client_left")

    def withdraw(self) -> bool:
        """End the request unanswered and unreported if no engine has got it: another gateway will serve it."""
        if self._status or self._reply.begun or self._dispatch.phase is Phase.SERVING:
            return False
        self._dispatch.cancel()
        self._end(_CLIENT_CLOSED_REQUEST, _WITHDRAWN)
        return True

    def save(self, door: Door) -> tuple[bytes, bytes] | None:
        history, attempt = self._reply.history, self._dispatch.attempt
        if self.why_not_movable is not None or self.moving is not None or self._reply.door is not door:
            return None
        if history is None or history.common is None or attempt is None:
            return None
        saved = self._job.body, history.saved(attempt.route.chosen)
        self._dispatch.cancel()
        self._end(_CLIENT_CLOSED_REQUEST, _WITHDRAWN)
        return saved

    def go_on(self, body: bytes, caller: Caller | None, saved: bytes) -> bool:
        job = self._job
        self._reply.go_on(None)  # whatever happens, the client has the beginning of a stream
        try:
            job.admit(body, caller)
            self._continue(msgspec.msgpack.decode(saved, type=SavedStream))
        except RequestError as error:
            self.fail(error)
        except Exception:
            self._defect("a stream of another gateway met a defect of this one")
        return True

    def _continue(self, saved: SavedStream) -> None:
        job, context = self._job, self._job.context
        driver = context.continuation.drivers.get(saved.backend)
        if driver is None:
            raise CannotContinue(f"Backend '{saved.backend}', which had begun the answer, is no longer configured")
        traits = driver.continuation.streams
        history = StreamHistory(job.path, saved.body, traits, added=False, memory=context.engine_memory)
        history.restore(saved)
        self._reply.go_on(history)
        self._rest = rest = ContinuationJob(job, history, saved.model, 0)
        rest.broke(UpstreamError("The gateway that had begun the answer was replaced"))
        self._reply = self._joined = JoinedReply(self._reply, self._rejoined)
        self._dispatch.job = rest
        self._dispatch.start()

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

    async def move(self, destination: str, engine_request: str = "", cause: str = "operator") -> MovedStream:
        if self.moving is not None:
            raise CannotContinue("The request is being moved already")
        move = Move(self, self._job.context, destination, engine_request, cause)
        self.moving = move.abandon
        try:
            return await move.run()
        finally:
            self.moving = None

    def cancel(self, error: RequestError | None = None) -> None:
        if not self._status:
            self._dispatch.cancel()
            self.fail(error or Cancelled("The request was cancelled by an operator"))

    def cut_off(self, why: str) -> None:
        attempt = self._dispatch.attempt
        if attempt is not None and attempt.connection is not None:
            attempt.connection.abort()
            self.broken(why, stale=False)

    def check_time(self, now: float) -> None:
        attempt = self._dispatch.attempt
        if attempt is None:
            return
        if attempt.advanced:
            attempt.await_more()
        if now >= attempt.total_deadline:
            self._expire(attempt)
        elif now >= attempt.deadline:
            self._lost(attempt.expire())
        elif now >= attempt.client_deadline:
            self._check_client(attempt)

    def _expire(self, attempt: Attempt) -> None:
        """End the request, whose time is over. That is the engine's fault, unless its client was slow to read."""
        error = attempt.expire_total()
        if attempt.sent_at and not self._reply.paused:
            self._dispatch.blame(error)
        self.cancel(error)

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

    # --- from the dispatch

    def send_attempt(self, attempt: Attempt, reuse: bool) -> None:
        job = self._dispatch.job
        request = job.request(attempt.upstream, attempt.body)
        attempt.send(self, request, reuse=reuse, upload=None if reuse else job.upload)
        if self._hedge is not None:
            self._hedge.sent(attempt)

    # --- from the engine

    def spoiled(self, problem: BrokenStream) -> None:
        self._spoil(self.current_attempt(), problem)

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        attempt, job = self._dispatch.attempt, self._job
        assert attempt is not None
        if head is not None:
            attempt.head = head
        if complete:
            attempt.connection = None
        if not self._reply.begun:
            if not (body or complete or job.raw) or self._turns_away(attempt, body, complete):
                return
            if not job.raw:
                body = attempt.hold(body, job.context.hold_answers, complete=complete)
        if self._reply.begun or self._commit(attempt, body, complete):
            if complete:
                self._finish(attempt, body)
            elif body and (problem := self._reply.write(body)) is not None:
                self._spoil(attempt, problem)
            elif attempt.connection is not None:
                attempt.connection.fast_path = self._reply.fast_path

    def broken(self, why: str, *, stale: bool) -> None:
        job = self._job
        log_context.enter(job.request_id, job.trace_id)
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
        elif self._hedge is None or not self._hedge.saves(error):
            self._dispatch.lost(error)

    def _broke_off(self, error: RequestError) -> None:
        """Have another engine continue the stream, or end it: with the events that are missing, or with the error.

        A stream of which the client has nothing is retried as if it had not begun.
        """
        if self._reply.withdraw():
            self._dispatch.lost(error)
            return
        dispatch, history, rest = self._dispatch, self._reply.history, self._rest
        ending = None if history is None else history.ending()
        if ending is not None:
            dispatch.blame(error)
            dispatch.cancel()
            self._reply.end(ending)
            self._end(self._reply.status, "served")
            return
        if history is None or not history.may_go_on():
            dispatch.broke_off(error)
            return
        if rest is None:
            self._rest = rest = ContinuationJob(
                self._job, history, dispatch.current().route.chosen.model, dispatch.retries
            )
        rest.broke(error)
        self._reply = self._joined = JoinedReply(self._reply, self._rejoined)
        dispatch.continue_as(rest, error)

    def _rejoined(self) -> bool:
        """Note that the client gets more of a stream that broke off."""
        assert self._rest is not None
        self._dispatch.current().gap = self._rest.joined()
        return True

    def _turns_away(self, attempt: Attempt, body: bytes, complete: bool) -> bool:
        """Judge an answer whose body begins; whether the request is sent again instead, because of its status."""
        head, job = attempt.head, self._job
        if attempt.answered_at or self._rest is not None:
            return False
        assert head is not None
        if complete and self._dispatch.goes_elsewhere(body):
            return True
        now = job.context.clock.now()
        attempt.begins_answer(now)
        self._suspects = job.judge(attempt.route, head.status, now - attempt.sent_at, self._suspects)
        if head.status < 400:
            return False
        if head.status in SAID_WITH:
            job.context.asked_for_pause(attempt.route.chosen.backend, head.lines)
        if head.status not in job.retry_statuses or ATTEMPTS in head.lines:  # a gateway there has tried its engines
            return False
        return self._retries(attempt, head, body if complete else None)

    def _commit(self, attempt: Attempt, body: bytes, complete: bool) -> bool:
        """Begin the reply with the engine's answer; whether the caller has to pass ``body`` on.

        It need not if it is too early, if the request is sent again instead, or if the answer was passed on as a whole.
        """
        head, route, job = attempt.head, attempt.route, self._job
        chosen = route.chosen
        assert head is not None
        if not (body or complete or job.raw):
            return False
        if self._rest is not None and self._joined is not None:
            return self._accept(attempt, head, self._rest, self._joined)
        if complete and self._dispatch.goes_elsewhere(body):
            return False
        if self._misfits(attempt, head):
            return False
        must_be_json = self._must_be_json(head)
        if must_be_json and complete:
            problem = why_unfit(body, chosen.backend, may_be_error=self._reply.form.is_checked)
            if problem is not None:
                self._unfit(problem, chosen)
                return False
        if self._hedge is not None:
            self._hedge.begins(attempt, head.status)
        if self._refusal is not None and complete and head.status in REFUSALS:
            head, body, route, _ = self._refusal
            chosen = route.chosen
        if complete and head.status >= 400 and not (job.raw or head.opaque or head.stream):
            head, body = readable_error(head, body, self._reply.form, chosen, job.requirements)
        begun = self._begin_reply(attempt, head, route, body if complete else None, must_be_json=must_be_json)
        if head.stream and head.status == 200 and not job.raw:
            self._reply.keep(job.history)
        return begun

    def _begin_reply(
        self, attempt: Attempt, head: AnswerHead, route: Route, whole: bytes | None, *, must_be_json: bool
    ) -> bool:
        """Begin the reply, or deliver it if it is ``whole``; whether its body is still to be passed on."""
        chosen, job = route.chosen, self._job
        if job.context.renames and (chosen.name_there or chosen.model) != route.requested and not job.raw:
            self._name_model(head, route.requested)
        if job.hides_usage and head.stream and head.status == 200:
            self._reply.hide_usage()
        origin = origin_lines(chosen.backend, chosen.model, route.reason._value_)  # .value takes 0.2 us in Python 3.10
        if self._reply.status:
            self._reply = self._reply.join(head, origin, chosen.backend)
            if self._reply.paused:
                attempt.pause()
            return True
        lines = self._reply_lines(attempt, head, origin)
        stream = head.stream and not job.raw
        if whole is not None and not stream and job.method != "HEAD":
            self._reply.answer(head.status, lines, whole)
            self._served(attempt, head.status)
            return False
        in_pieces = JsonInPieces() if must_be_json else None
        self._reply.begin(head.status, lines, None if stream else head.length, stream, in_pieces)
        return True

    def _reply_lines(self, attempt: Attempt, head: AnswerHead, origin: bytes) -> bytes:
        """The header lines that the client gets: the engine's, and the gateway's own."""
        job = self._job
        theirs = job.client_lines(head.lines, attempt.upstream) if job.raw else head.lines
        overhead = int(self._overhead * 1e6)
        own = b"x-request-id: %s\r\nx-enginehouse-overhead-us: %d\r\n" % (job.request_id, overhead)
        lines = theirs + origin + own + job.protocol_line + job.limit_lines
        if head.status in job.retry_statuses and ATTEMPTS not in theirs:
            lines += b"%s%d\r\n" % (ATTEMPTS, self._dispatch.sent)
        return lines

    def _misfits(self, attempt: Attempt, head: AnswerHead) -> bool:
        """Whether the answer is none that the client understands. The request is then sent again instead, or fails."""
        job, reply = self._job, self._reply
        streams = job.requirements is not None and job.requirements.stream
        if (head.status < 300 and not streams) or job.raw or reply.status or not reply.form.is_checked:
            return False
        misfit = why_misfit(head, attempt.upstream.name, streams=streams)
        if misfit is None:
            return False
        attempt.cancel()
        self._lost(misfit)
        return True

    def _unfit(self, problem: RequestError, chosen: Candidate) -> None:
        too_long = context_error(problem.details.get("error"), chosen, self._job.requirements)
        if too_long is not None:
            self._dispatch.cancel()
            self.fail(too_long)
        else:
            self._lost(problem)

    def _name_model(self, head: AnswerHead, name: str) -> None:
        """Let the client find ``name`` in the answer: it knows the model by no other one."""
        if head.status < 300 and (head.stream or head.json):
            self._reply.name_model(name, stream=head.stream)

    def _must_be_json(self, head: AnswerHead) -> bool:
        """Whether the answer is JSON or bad: it says so, or it answers a chat or the like and is no stream."""
        if head.status >= 300 or self._job.raw:
            return False
        return head.json or (not head.stream and not head.opaque and self._reply.form.is_checked)

    def _retries(self, attempt: Attempt, head: AnswerHead, body: bytes | None) -> bool:
        """Leave the request to another replica, because this one's answer is worth a retry; whether there is one.

        ``body``: of the answer, if it is whole.
        """
        if self._refusal is None and body is not None and head.status in REFUSALS:
            share = EngineShare(self._job.context.engine_memory, "answer", len(body))
            if not share.take(len(body)):
                self._refusal = _FirstRefusal(head, body, attempt.route, share)
        if self._hedge is not None and self._hedge.takes_over("answered"):
            return True
        return self._dispatch.retry(Outcome.ANSWERED)

    def _accept(self, attempt: Attempt, head: AnswerHead, rest: ContinuationJob, reply: JoinedReply) -> bool:
        """Begin with the answer to a continuation, unless it is no stream."""
        attempt.begins_answer(rest.context.clock.now())
        rest.judge(attempt.route, head.status, 0.0, ())
        if head.status != 200 or not head.stream:
            self._dispatch.try_otherwise()
            return False
        reply.accept(rest.translator)
        if reply.paused:
            attempt.pause()
        return True

    def _finish(self, attempt: Attempt, body: bytes) -> None:
        problem = self._reply.finish(body)
        if self._status:  # its door has refused the last piece
            return
        if problem is not None:
            self._spoil(attempt, problem)
        else:
            self._served(attempt, self._reply.status)

    def _served(self, attempt: Attempt, status: int) -> None:
        """Tell that the whole answer was good, and end the request."""
        self._dispatch.job.served(attempt.route, status, self._suspects)
        self._end(status, "served")

    def _spoil(self, attempt: Attempt, problem: BrokenStream) -> None:
        """Have another engine continue a stream that is not whole, or end it with an error."""
        attempt.cancel()
        if problem.differs and self._rest is not None and not self._rest.is_joined:
            self._reply.begun = False
            self._dispatch.try_otherwise()
            return
        details = {"error": problem.error} if problem.error is not None else None
        error = UpstreamError(f"Backend '{attempt.upstream.name}' {problem.why}", details=details)
        too_long = context_error(problem.error, attempt.route.chosen, self._job.requirements)
        if too_long is not None:
            self._reply.drop_head()
            self.fail(too_long)
        elif problem.is_request:
            self.fail(error)
        else:
            self._broke_off(error)

    # --- the end

    def fail(self, error: RequestError) -> None:
        job = self._job
        if self._rest is not None:
            error = self._rest.failed(error)
        elif not self._reply.begun:
            job.context.refused(job.request_id, job.key, job.requirements, error)
        self._reply.fail(error, job.request_id, self._dispatch.sent)
        self._end(error.status, error.code, error)

    def _end(self, status: int, outcome: str, error: RequestError | None = None) -> None:
        job, why = self._job, error.message if error is not None else ""
        self._status = status
        answer = self._reply.measure()
        attempt = self._dispatch.attempt
        job.release(answer, attempt.route.chosen.model if attempt is not None else "")
        if self._hedge is not None:
            self._hedge.end(outcome, why)
        self._dispatch.end(outcome, why)
        if self.moving is not None:
            self.moving()
        if self._refusal is not None:
            self._refusal.share.give_back()
        if outcome == "served" and status >= 400:
            outcome = "engine_error"
        if outcome == _WITHDRAWN:
            self._endings.withdrawn(self)
        else:
            self._endings.ended(self, job, status, outcome, error, answer)
        if self._reply.history is not None:
            self._reply.history.release()
        if self._joined is not None:
            self._joined.release()
