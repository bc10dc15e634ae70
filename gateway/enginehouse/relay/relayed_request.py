"""A request whose answer passes through the gateway."""

from __future__ import annotations

from collections.abc import Callable

from enginehouse.domain.errors import CannotContinue, EngineRefused, RequestError, UpstreamError
from enginehouse.domain.request_record import StreamTokens
from enginehouse.domain.ticket import Phase
from enginehouse.domain.tokens import Tokens
from enginehouse.fleet.health import REFUSALS
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.continuers import Continuer, KeptStream
from enginehouse.relay.answers.changes import cut_usage
from enginehouse.relay.answers.engine_error import context_error, readable_error
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.answer_judge import AnswerJudge
from enginehouse.relay.attempts.attempt import Attempt, client_error, defect
from enginehouse.relay.attempts.hedge import Hedge
from enginehouse.relay.events.stream_check import BrokenStream
from enginehouse.relay.heads import ATTEMPTS, AnswerHead, origin_lines, wants_cache_line
from enginehouse.relay.jobs.continuation_job import ContinuationJob, JoinedReply
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_request import MovedStream
from enginehouse.relay.moves.move import Move
from enginehouse.relay.request import CLIENT_LEFT, WITHDRAWN, LiveRequests, Request
from enginehouse.relay.response_writer import ResponseWriter
from enginehouse.telemetry.log_context import log_context


class RelayedRequest(Request):
    """Connects a client with the answer of an engine.

    A state machine of callbacks: a plain request creates no coroutine. It commits to an answer with the first byte of
    the body, or the first whole event of a stream. Until then a failure may still be retried. A failure for good is
    answered with its true status, or as the end of a stream that a progress report or an engine has begun.

    - ``moving``: set while its stream is being moved; called if it ends meanwhile.
    - ``_rest``: the rest of a stream that an engine broke off.
    - ``_held``: a move reads no more of the source's answer.
    - ``_ping_at``: when its client gets a ping, if nothing else comes until then.
    - ``_unread``: the bytes that the client had not taken when its answer was last looked at.
    """

    moving: Callable[[], None] | None = None
    _hedge: Hedge | None = None
    _rest: ContinuationJob | None = None
    _held: bool = False
    _ping_at: float = 0.0
    _served_model: str = ""
    _unread: int = 0

    def __init__(self, job: Job, writer: ResponseWriter, live_requests: LiveRequests) -> None:
        super().__init__(job, live_requests)
        self.reply = Reply(writer, job.context.form(job.path))
        self.address = writer.address
        if job.trace is not None:
            self.reply.captured = job.trace.captured
        hedging = job.context.hedging
        if hedging is not None and job.hedges:
            self._hedge = Hedge(self._dispatch, self, hedging)
        self._judge = AnswerJudge(job, self._dispatch, self._hedge)
        live_requests.begin(self)

    # --- as others see it

    @property
    def backend(self) -> str:
        """The backend that serves it now; empty if there is none."""
        attempt = self._dispatch.attempt
        return attempt.route.chosen.backend if attempt is not None else ""

    @property
    def _live_phase(self) -> Phase:
        if self.moving is not None or (self._rest is not None and not self.reply.begun):
            return Phase.MIGRATING
        if self.reply.begun and self._dispatch.attempt is None:  # what the engine has answered is still decided about
            return Phase.SERVING
        return self._dispatch.phase

    @property
    def waiting_reply(self) -> Reply | None:
        requirements = self.job.requirements
        if requirements is None or not requirements.stream or self.reply.begun or self.has_ended:
            return None
        return self.reply

    @property
    def pieces(self) -> int | None:
        attempt = self._dispatch.attempt
        if attempt is None or attempt.connection is None or self._held or self.reply.paused:
            return None
        return attempt.connection.pieces

    def tokens(self) -> StreamTokens:
        history = self.reply.history
        if history is None:
            return StreamTokens(output=self.reply.events)
        known = history.tokens()
        if known.output is None:  # as with llama-server, whose tokens are counted only at the end
            known = known._replace(output=self.reply.events)
        return known

    def answer_ends(self) -> tuple[bytes, bytes]:
        return self.reply.ends()

    # --- from its client

    def admit(self, body: bytes, caller: AdmittedCaller | None) -> bytes:
        """Take the request, which no engine gets, within the limits of ``caller``. Returns header lines that say these.

        Raises ``RequestError``.
        """
        job = self.job
        with log_context.named(job):
            job.admit(body, caller, self.address)
        return job.limit_lines

    def give_back(self) -> None:
        """Undo ``admit``."""
        self.job.release((0, 0, Tokens(0, 0)), "")

    def refuse(self, error: RequestError, caller: AdmittedCaller | None) -> None:
        """End the request of ``caller`` with ``error``, before an engine has got it."""
        self.job.caller = caller  # the record of a refused request names it
        self.cancel(error)

    def client_disconnected(self) -> None:
        if not self._status:
            self._end(CLIENT_LEFT, "client_left")

    def withdraw(self) -> bool:
        reply = self.reply
        if self._status or reply.begun or reply.status or self._dispatch.phase is Phase.SERVING:
            return False
        self._end(CLIENT_LEFT, WITHDRAWN)
        return True

    def pause(self) -> None:
        self.reply.paused = True
        self._unread = self.reply.writer.unread()
        if self._dispatch.attempt is not None and not self._held:
            self._dispatch.attempt.pause()

    def resume(self) -> None:
        self.reply.paused = False
        if self._dispatch.attempt is not None and not self._held:
            self._dispatch.attempt.resume()

    def save(self, writer: ResponseWriter) -> tuple[bytes, bytes] | None:
        reply, attempt = self.reply, self._dispatch.attempt
        history = reply.history
        alone = reply.writer is writer and not reply.filters and reply.captured is None
        if not alone or self.why_not_movable is not None or self.moving is not None:
            return None
        saved = None if history is None or attempt is None else history.saved(attempt.route.chosen)
        if saved is None:
            return None
        self._end(CLIENT_LEFT, WITHDRAWN)
        return self.job.body, saved

    def go_on(self, body: bytes, caller: AdmittedCaller | None, saved: bytes) -> bool:
        job = self.job
        self.reply.go_on(None)  # whatever happens, the client has the beginning of a stream
        try:
            job.admit(body, caller)
            self._continue(saved)
        except RequestError as error:
            self.fail(error)
        except Exception:
            self.fail(defect("a stream of another gateway met a defect of this one"))
        return True

    def _continue(self, saved: bytes) -> None:
        context, replaced = self.job.context, UpstreamError("The gateway that had begun it was replaced")
        if context.continuer is None:
            raise replaced
        history, model = context.continuer.restore(self.job.path, saved, context.drivers, context.continuation_share)
        self.reply.go_on(history)
        self._dispatch.job = self._join(context.continuer, history, model, replaced)
        self._dispatch.start()

    def _answers_itself(self) -> bool:
        job, reply, asked = self.job, self.reply, self.job.translation
        assert asked is not None
        if not asked.loads or asked.keep_alive != 0 or job.context.is_ready(job.route(()).chosen.model):
            return False
        lines = b"content-type: application/json\r\nx-request-id: %s\r\n%s" % (job.request_id, job.limit_lines)
        reply.answer(200, lines, b"{}")
        reply.writer.settle(self._settled)
        return True

    # --- from its dispatch

    def send_attempt(self, attempt: Attempt, reuse: bool) -> None:
        job = self._dispatch.job
        request = job.request(attempt.upstream, attempt.body)
        attempt.send(self, request, reuse=reuse, upload=None if reuse else job.upload)
        if self._hedge is not None:
            self._hedge.sent(attempt)

    # --- from the engine

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        attempt = self._dispatch.attempt
        assert attempt is not None
        try:
            if head is not None:
                attempt.head = head
            if complete:
                attempt.connection = None
            if not self.reply.begun:
                begun = self._begin_answer(attempt, body, complete)
                if begun is None:
                    return
                body = begun
            if complete:
                self._finish(attempt, body)
            elif body and (problem := self.reply.write(body)) is not None:
                self.spoil(attempt, problem)
            elif attempt.connection is not None:
                attempt.connection.fast_path = self.reply.fast_path
        except Exception as error:
            self.fail_alone(error)

    def broken(self, why: str, *, stale: bool) -> None:
        job = self.job
        with log_context.named(job):
            try:
                if stale:
                    self._dispatch.send_anew()
                elif self._dispatch.attempt is not None:
                    self._lost(self._dispatch.attempt.broken(why))
            except Exception as error:
                self.fail_alone(error)

    # --- an answer begins

    def _begin_answer(self, attempt: Attempt, body: bytes, complete: bool) -> bytes | None:
        """Begin the reply with the engine's answer. Returns what of its body is to be passed on.

        ``None`` if it is too early, if the request is sent again instead, or if the answer was passed on as a whole.
        """
        head, job, rest, judge, reply = attempt.head, self.job, self._rest, self._judge, self.reply
        assert head is not None
        at_once, is_first = job.raw and head.status < 400, not attempt.answered_at
        if not (body or complete or at_once):
            return None
        if rest is not None:  # first: nothing of a refusal is held, for the next way is tried in the same attempt
            return body if self._accept(attempt, head, rest) else None
        if is_first and judge.turns_away(attempt, body, complete):
            return None
        if not at_once and not (complete and is_first):
            body = attempt.hold(body, job.context.config.server.hold_answers, complete=complete)
            if not (body or complete):
                return None
        if complete and head.status >= 400 and not is_first and self._dispatch.goes_elsewhere(body):
            return None
        if (problem := judge.problem(attempt, reply, body, complete)) is not None:
            attempt.cancel()
            self._lost(problem)
            return None
        if self._hedge is not None:
            self._hedge.begins(attempt, head.status)
        return self._begin_reply(attempt, body, complete)

    def _begin_reply(self, attempt: Attempt, body: bytes, complete: bool) -> bytes | None:
        """Begin the reply with an answer that fits, or deliver it if it is whole; returns what is left to pass on."""
        head, whole, route, job, reply = attempt.head, body, attempt.route, self.job, self.reply
        assert head is not None
        refusal = self._judge.refusal
        if refusal is not None and complete and head.status in REFUSALS:
            head, whole, route, _ = refusal
        chosen = route.chosen
        if complete and head.status >= 400 and not (job.raw or head.opaque or head.stream):
            quotes = not reply.status  # the error event of a begun stream has the text in its details
            head, whole = readable_error(head, whole, reply.form, chosen, job.requirements, quotes=quotes)
        stream = head.stream and not job.raw
        is_named = head.stream or (head.json and not reply.status)  # JSON in a begun stream becomes an error event
        differs = (chosen.name_there or chosen.model) != route.requested and not job.raw and head.status < 300
        if differs and is_named and job.context.config.routing.answer_model == "asked":
            reply.name_model(route.requested, stream=stream)
        if job.hides_usage and head.stream and head.status == 200:
            reply.filters += (cut_usage,)  # the gateway asked for it
        origin = origin_lines(chosen.backend, chosen.model, route.reason._value_)  # .value takes 0.2 us in Python 3.10
        if reply.status:  # a progress report has begun it
            self.reply = reply = reply.join(head, origin, chosen.backend)
            if reply.paused:
                attempt.pause()
        else:
            lines = self._reply_lines(attempt, head, origin)
            if complete and not stream and job.method != "HEAD":
                reply.answer(head.status, lines, whole)
                self._settle(attempt, head.status)
                return None
            reply.begin(head.status, lines, None if stream else head.length, stream)
        if stream and head.status == 200:
            reply.keep(job.history)
        return whole

    def _reply_lines(self, attempt: Attempt, head: AnswerHead, origin: bytes) -> bytes:
        """The header lines that the client gets: the engine's, and the gateway's own."""
        job = self.job
        theirs = job.client_lines(head.lines, attempt.upstream) if job.raw else head.lines
        overhead, more = int(self._overhead * 1e6), job.protocol_line + job.limit_lines
        lines = b"%s%sx-request-id: %s\r\nx-enginehouse-overhead-us: %d\r\n%s" % (
            theirs,
            origin,
            job.request_id,
            overhead,
            more,
        )
        if wants_cache_line(job.headers):
            lines += attempt.cache_line()
        if head.status in job.retry_statuses and ATTEMPTS not in theirs:
            lines += b"%s%d\r\n" % (ATTEMPTS, self._dispatch.sent)
        return lines

    # --- an answer ends, or breaks

    def _finish(self, attempt: Attempt, body: bytes) -> None:
        problem = self.reply.finish(body)
        if problem is None:
            self._settle(attempt, self.reply.status)
        elif not self._status:  # otherwise a writer has ended the request with another error
            self.spoil(attempt, problem)

    def _complete(self, attempt: Attempt, ending: bytes) -> None:
        """End a stream that needs its engine no more, with ``ending``: the events that its client has not got."""
        attempt.cancel()
        self.reply.is_over = False
        self.reply.end(ending)
        self._settle(attempt, self.reply.status, served=False)

    def _settle(self, attempt: Attempt, status: int, *, served: bool = True) -> None:
        """End the request as soon as its client has the answer, which is whole.

        ``served``: the engine gave the end of it too. What a writer still holds keeps no slot of the engine.
        """
        if self._status:  # a writer has ended the request with an error
            return
        if served:
            self._dispatch.job.served(attempt.route, status, self._judge.suspects)
        writer = self.reply.writer
        if not writer.holds_back:
            self._end(self.reply.status, "served")
            return
        writer.settle(self._settled)
        if not self._status:
            if status < 400 and self._rest is None:
                attempt.counted(self.reply.measure())
            self._served_model = attempt.route.chosen.model
            self._dispatch.leave("served")

    def _settled(self, error: RequestError | None) -> None:
        """End the request with what its client got: the engine's answer, or ``error``."""
        if self._status:
            return
        if error is None:
            self._end(self.reply.status, "served")
        else:
            self._end(error.status, error.code, error)

    def _lost(self, error: RequestError) -> None:
        """Retry or continue the request elsewhere, or fail it: its engine did with ``error``."""
        if self.reply.begun:
            self._broke_off(error)
        elif self._hedge is None or not self._hedge.saves(error):
            self._dispatch.lost(error)

    def spoil(self, attempt: Attempt, problem: BrokenStream) -> None:
        """Have another engine continue a stream that is not whole, or end it with an error."""
        attempt.cancel()
        if problem.differs and self._rest is not None and not self._rest.is_joined:
            self.reply.begun = False
            self._dispatch.try_otherwise()
            return
        details = {"error": problem.error} if problem.error is not None else None
        error = UpstreamError(f"Backend '{attempt.upstream.name}' {problem.why}", details=details)
        too_long = context_error(problem.error, attempt.route.chosen, self.job.requirements)
        if too_long is not None:
            self.fail(too_long)
        elif blamed := problem.blamed:
            self.fail(EngineRefused(blamed, error.message, error.details))
        else:
            self._broke_off(error)

    # --- another engine continues the stream

    def _broke_off(self, error: RequestError) -> None:
        """Have another engine continue the stream, or end it: with the events that are missing, or with the error.

        A stream of which the client has nothing is retried as if it had not begun.
        """
        if self.reply.withdraw():
            self._dispatch.lost(error)
            return
        dispatch, history = self._dispatch, self.reply.history
        ending = None if history is None else history.ending()
        if ending is not None:
            dispatch.blame(error)
            self._complete(dispatch.current(), ending)
        elif history is None or (continuer := self.job.context.continuer) is None or not history.may_go_on():
            dispatch.blame(error)
            self.fail(error)
        else:
            model = dispatch.current().route.chosen.model
            dispatch.job = self._join(continuer, history, model, error)
            dispatch.lost(error)

    def _join(self, continuer: Continuer, history: KeptStream, model: str, error: RequestError) -> ContinuationJob:
        """The rest of the stream, which broke off with ``error``. Its answer will be joined to what the client has."""
        rest = self._rest
        if rest is None:
            self._rest = rest = ContinuationJob(self.job, history, continuer, model, self._dispatch.state.retries)
        rest.broke(error, self.reply, self._rejoined)
        self.reply = rest.reply
        return rest

    def _accept(self, attempt: Attempt, head: AnswerHead, rest: ContinuationJob) -> bool:
        """Begin with the answer to a continuation, or try another way."""
        attempt.begins_answer(rest.context.clock.now())
        accepted = rest.accepts(attempt.route, head)
        if not accepted:
            self._dispatch.try_otherwise()
        elif rest.reply.paused:
            attempt.pause()
        return accepted

    def _rejoined(self) -> bool:
        """Note that the client gets more of a stream that broke off."""
        assert self._rest is not None
        self._dispatch.current().gap = self._rest.joined()
        return True

    # --- its stream moves to another engine

    async def move(self, destination: str, engine_request: str = "", cause: str = "operator") -> MovedStream:
        if self.moving is not None:
            raise CannotContinue("The request is being moved already")
        continuer, attempt = self.job.context.continuer, self.attempt
        if continuer is None:
            raise CannotContinue("The request stays where it is: no plugin moves live streams")
        if attempt is None or not self.reply.begun:
            raise CannotContinue("The request has no answer yet")
        move = Move(self, attempt, destination, engine_request, cause)
        self.moving = move.abandon
        try:
            return await move.run(continuer)
        finally:
            self.moving = None

    @property
    def why_not_movable(self) -> str | None:
        history = self.reply.history
        if self._status:
            return "it has ended"
        if not (self.reply.begun and self.reply.status):
            return "its answer has not begun"
        if history is None:
            return "it is not a stream that another backend could continue"
        return history.why_not_movable() or None

    def movable(self) -> KeptStream:
        history, why = self.reply.history, self.why_not_movable
        if history is None or why:
            raise CannotContinue(f"The request stays where it is: {why}")
        return history

    def hold(self) -> None:
        self._held = True
        if not self.reply.paused:
            self._dispatch.current().pause()

    def read_on(self) -> None:
        self._held = False
        if not self._status and not self.reply.paused and self._dispatch.attempt is not None:
            self._dispatch.attempt.resume()

    def adopt(self, attempt: Attempt, reply: JoinedReply) -> bool:
        if self._status:
            return False
        self._held = False
        self._dispatch.replace(attempt, "moved")
        reply.paused = self.reply.paused
        self.reply = reply
        self.moves += 1
        if reply.paused:
            attempt.pause()
        else:
            attempt.await_more()
        return True

    # --- time limits

    def check_time(self, now: float) -> None:
        attempt = self._dispatch.attempt
        advanced = attempt is not None and attempt.advanced
        if self.job.context.heartbeat:
            self._keep_alive(now, self.job.context.heartbeat, advanced=advanced)
        if attempt is None:
            return
        is_over = self.reply.is_over and not (self.reply.paused or self._held)
        if is_over:
            attempt.await_end(now)
        elif advanced:
            attempt.await_more()
        if now >= attempt.deadline and is_over:
            self._complete(attempt, b"")
        elif now >= attempt.total_deadline:
            self._expire(attempt)
        elif now >= attempt.deadline:
            self._lost(attempt.expire())
        elif self.reply.paused and now >= attempt.client_deadline:  # otherwise a move holds the answer up
            self._check_client(attempt)

    def _keep_alive(self, now: float, heartbeat: float, *, advanced: bool) -> None:
        """Ping the client of a stream that has been silent for ``heartbeat`` seconds; it ``advanced`` just now."""
        needs, reply = self.job.requirements, self.reply
        if needs is None or not needs.stream or self.job.raw or not reply.form.is_checked:
            return
        if advanced or not self._ping_at:
            self._ping_at = (now if advanced else self.job.began) + heartbeat
        if now >= self._ping_at:
            self._ping_at = now + heartbeat
            reply.ping(self.job.request_id)

    def _expire(self, attempt: Attempt) -> None:
        """End the request, whose time is over. That is the engine's fault, unless its client was slow to read."""
        error = attempt.expire_total()
        if attempt.sent_at and not self.reply.paused:
            self._dispatch.blame(error)
        self.cancel(error)

    def _check_client(self, attempt: Attempt) -> None:
        """End the request if its client has read nothing since the last check: it occupies an engine."""
        unread = self.reply.writer.unread()
        if unread < self._unread:
            self._unread = unread
            attempt.await_client()
            return
        self._dispatch.cancel()  # first: nothing of the answer may come while its writer closes
        self.reply.writer.abort()
        self._end(CLIENT_LEFT, "client_left")

    # --- the end

    def cut_off(self, why: str) -> None:
        attempt = self._dispatch.attempt
        if attempt is not None and attempt.connection is not None:
            attempt.connection.abort()
            self.broken(why, stale=False)

    def fail(self, error: RequestError) -> None:
        if self._status:
            return
        attempt = self._dispatch.attempt
        if self.reply.is_over and attempt is not None:
            try:
                self._complete(attempt, b"")
            except Exception as refused:
                error = client_error(refused)
            else:
                return
        job = self.job
        self._dispatch.cancel()  # first: nothing of the answer may come while its writer closes
        if self._rest is not None:
            error = self._rest.failed(error)
        elif not self.reply.begun:
            job.context.refused(job.request_id, job.key, job.requirements, error)
        try:
            self.reply.fail(error, job.request_id, self._dispatch.sent)
        except Exception:
            defect("a client could not be told of an error")
            self.reply.writer.abort()
        self._end(error.status, error.code, error)

    def _end(self, status: int, outcome: str, error: RequestError | None = None) -> None:
        self._status = status
        answer, attempt = self.reply.measure(), self._dispatch.attempt
        if attempt is not None and outcome == "served" and status < 400 and self._rest is None:
            attempt.counted(answer)
        if self._hedge is not None:
            self._hedge.end(outcome, error.message if error is not None else "")
        if self._judge.refusal is not None:
            self._judge.refusal.share.give_back()
        model = attempt.route.chosen.model if attempt is not None else self._served_model
        self.end(status, outcome, error, answer, model)
        if self.moving is not None:
            self.moving()
        if self.reply.history is not None:
            self.reply.history.release()
        if self._rest is not None:
            self._rest.reply.release()
