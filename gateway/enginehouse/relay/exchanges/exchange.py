"""One request on its way: from its client to an engine and the answer back."""

from __future__ import annotations

import msgspec

from enginehouse.domain.errors import CannotContinue, EngineRefused, RequestError, UpstreamError
from enginehouse.domain.ticket import Phase
from enginehouse.relay.answers.engine_error import context_error
from enginehouse.relay.answers.joined_reply import JoinedReply
from enginehouse.relay.answers.passing_door import CapturingDoor
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.attempt import Attempt, defect
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.attempts.hedge import Hedge
from enginehouse.relay.continuation.progress import SavedStream
from enginehouse.relay.continuation.stream_history import StreamHistory
from enginehouse.relay.door import Caller, Door
from enginehouse.relay.events.stream_check import BrokenStream
from enginehouse.relay.events.stream_form import stream_form
from enginehouse.relay.exchanges.answered_exchange import AnsweredExchange
from enginehouse.relay.heads.answer_head import AnswerHead
from enginehouse.relay.jobs.continuation_job import ContinuationJob
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.endings import CLIENT_LEFT, WITHDRAWN, Endings
from enginehouse.relay.live.live_request import MovedStream
from enginehouse.relay.moves.move import Move
from enginehouse.telemetry.log_context import log_context


class Exchange(AnsweredExchange):
    """Connects a door, which brings the client's request, with the engine's answer.

    A state machine of callbacks: a plain request creates no coroutine. It commits to an answer with the first byte of
    the body, or the first whole event of a stream. Until then a failure may still be retried. A failure for good is
    answered with its true status, or as the end of a stream that a progress report or an engine has begun.
    """

    _unread: int = 0

    def __init__(self, job: Job, door: Door, endings: Endings) -> None:
        if job.trace is not None and job.trace.captured is not None:
            door = CapturingDoor(door, job.trace.captured)
        hedging = job.context.hedging
        self.job = job
        self._endings = endings
        self._reply = Reply(door, stream_form(job.path))
        self._dispatch = dispatch = Dispatch(job, self)
        if hedging is not None:
            self._hedge = Hedge(dispatch, self, hedging)

    @property
    def address(self) -> str:
        return self._reply.door.address

    # --- from the door

    def begin(self, body: bytes, caller: Caller | None = None) -> None:
        """Send the request, which is whole now, on its way. Does nothing after ``cancel``."""
        if self._status:
            return
        job = self.job
        self._start(body, caller)
        self._overhead = job.context.clock.now() - job.began

    def client_disconnected(self) -> None:
        if not self._status:
            self._end(CLIENT_LEFT, "client_left")

    def withdraw(self) -> bool:
        if self._status or self._reply.begun or self._dispatch.phase is Phase.SERVING:
            return False
        self._end(CLIENT_LEFT, WITHDRAWN)
        return True

    def save(self, door: Door) -> tuple[bytes, bytes] | None:
        history, attempt = self._reply.history, self._dispatch.attempt
        if self.why_not_movable is not None or self.moving is not None or self._reply.door is not door:
            return None
        if history is None or history.common is None or attempt is None:
            return None
        saved = self.job.body, history.saved(attempt.route.chosen)
        self._end(CLIENT_LEFT, WITHDRAWN)
        return saved

    def go_on(self, body: bytes, caller: Caller | None, saved: bytes) -> bool:
        job = self.job
        self._reply.go_on(None)  # whatever happens, the client has the beginning of a stream
        try:
            job.admit(body, caller)
            self._continue(msgspec.msgpack.decode(saved, type=SavedStream))
        except RequestError as error:
            self.fail(error)
        except Exception:
            self.fail(defect("a stream of another gateway met a defect of this one"))
        return True

    def _continue(self, saved: SavedStream) -> None:
        job, context = self.job, self.job.context
        driver = context.drivers.get(saved.backend)
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
        self._reply.paused = True
        self._unread = self._reply.door.unread()
        if self._dispatch.attempt is not None and not self._held:
            self._dispatch.attempt.pause()

    def resume(self) -> None:
        self._reply.paused = False
        if self._dispatch.attempt is not None and not self._held:
            self._dispatch.attempt.resume()

    # --- from operators and the watchdog

    async def move(self, destination: str, engine_request: str = "", cause: str = "operator") -> MovedStream:
        if self.moving is not None:
            raise CannotContinue("The request is being moved already")
        move = Move(self, self.job.context, destination, engine_request, cause)
        self.moving = move.abandon
        try:
            return await move.run()
        finally:
            self.moving = None

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
        unread = self._reply.door.unread()
        if unread < self._unread:
            self._unread = unread
            attempt.await_client()
            return
        self._dispatch.cancel()  # first: nothing of the answer may come while its door closes
        self._reply.door.abort()
        self._end(CLIENT_LEFT, "client_left")

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
        try:
            self._answered(head, body, complete)
        except Exception as error:
            self.fail_alone(error)

    def _answered(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        attempt, job = self._dispatch.attempt, self.job
        assert attempt is not None
        if head is not None:
            attempt.head = head
        if complete:
            attempt.connection = None
        if not self._reply.begun:
            passes = job.raw and attempt.head is not None and attempt.head.status < 400
            if not (body or complete or passes) or self._turns_away(attempt, body, complete):
                return
            if not passes:
                body = attempt.hold(body, job.context.hold_answers, complete=complete)
        if self._reply.begun or self._commit(attempt, body, complete):
            if complete:
                self._finish(attempt, body)
            elif body and (problem := self._reply.write(body)) is not None:
                self._spoil(attempt, problem)
            elif attempt.connection is not None:
                attempt.connection.fast_path = self._reply.fast_path

    def broken(self, why: str, *, stale: bool) -> None:
        job = self.job
        with log_context.named(job.request_id, job.trace_id):
            try:
                if stale:
                    self._dispatch.send_anew()
                elif self._dispatch.attempt is not None:
                    self._lost(self._dispatch.attempt.broken(why))
            except Exception as error:
                self.fail_alone(error)

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
            self._reply.door.finish(ending)
            if not self._status:  # its door has not refused the last piece
                self._end(self._reply.status, "served")
            return
        if history is None or not history.may_go_on():
            dispatch.broke_off(error)
            return
        if rest is None:
            self._rest = rest = ContinuationJob(
                self.job, history, dispatch.current().route.chosen.model, dispatch.retries
            )
        rest.broke(error)
        self._reply = self._joined = JoinedReply(self._reply, self._rejoined)
        dispatch.continue_as(rest, error)

    def _rejoined(self) -> bool:
        """Note that the client gets more of a stream that broke off."""
        assert self._rest is not None
        self._dispatch.current().gap = self._rest.joined()
        return True

    def _finish(self, attempt: Attempt, body: bytes) -> None:
        problem = self._reply.finish(body)
        if self._status:  # a door has ended the request with an error
            return
        if problem is not None:
            self._spoil(attempt, problem)
        else:
            self._served(attempt, self._reply.status)

    def _spoil(self, attempt: Attempt, problem: BrokenStream) -> None:
        """Have another engine continue a stream that is not whole, or end it with an error."""
        attempt.cancel()
        if problem.differs and self._rest is not None and not self._rest.is_joined:
            self._reply.begun = False
            self._dispatch.try_otherwise()
            return
        details = {"error": problem.error} if problem.error is not None else None
        error = UpstreamError(f"Backend '{attempt.upstream.name}' {problem.why}", details=details)
        too_long = context_error(problem.error, attempt.route.chosen, self.job.requirements)
        if too_long is not None:
            self._reply.drop_head()
            self.fail(too_long)
        elif blamed := problem.blamed:
            self._reply.drop_head()
            self.fail(EngineRefused(blamed, error.message, error.details))
        else:
            self._broke_off(error)

    # --- the end

    def fail(self, error: RequestError) -> None:
        if self._status:
            return
        job = self.job
        self._dispatch.cancel()  # first: nothing of the answer may come while its door closes
        if self._rest is not None:
            error = self._rest.failed(error)
        elif not self._reply.begun:
            job.context.refused(job.request_id, job.key, job.requirements, error)
        try:
            self._reply.fail(error, job.request_id, self._dispatch.sent)
        except Exception:
            defect("a client could not be told of an error")
            self._reply.door.abort()
        self._end(error.status, error.code, error)

    def _end(self, status: int, outcome: str, error: RequestError | None = None) -> None:
        job, why = self.job, error.message if error is not None else ""
        self._status = status
        answer = self._reply.measure()
        attempt = self._dispatch.attempt
        if attempt is not None and outcome == "served" and status < 400 and self._joined is None:
            attempt.counted(answer)
        model = attempt.route.chosen.model if attempt is not None else self._served_model
        job.release(answer, model, left=status == CLIENT_LEFT and self._dispatch.sent > 0)
        if self._hedge is not None:
            self._hedge.end(outcome, why)
        self._dispatch.end(outcome, why)
        if self.moving is not None:
            self.moving()
        if self._refusal is not None:
            self._refusal.share.give_back()
        if outcome == "served" and status >= 400:
            outcome = "engine_error"
        self._endings.ended(self, status, outcome, error, answer)
        if self._reply.history is not None:
            self._reply.history.release()
        if self._joined is not None:
            self._joined.release()
