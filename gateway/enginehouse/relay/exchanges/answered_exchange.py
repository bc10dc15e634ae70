"""The part of an exchange that begins the client's answer with an engine's, or turns that away."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from enginehouse.domain.errors import RequestError
from enginehouse.domain.replica import Candidate
from enginehouse.domain.route import Route
from enginehouse.fleet.verdicts import REFUSALS
from enginehouse.relay.answers.engine_error import context_error, readable_error
from enginehouse.relay.answers.joined_reply import JoinedReply
from enginehouse.relay.answers.json_answer import JsonInPieces, read_answer, why_misfit
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.attempts.hedge import Hedge
from enginehouse.relay.engine_memory import EngineShare
from enginehouse.relay.heads.answer_head import AnswerHead
from enginehouse.relay.heads.behalf import ATTEMPTS, wants_cache_line
from enginehouse.relay.heads.headers import origin_lines
from enginehouse.relay.jobs.continuation_job import ContinuationJob
from enginehouse.relay.jobs.job import Suspects
from enginehouse.relay.moves.movable_exchange import MovableExchange
from enginehouse.relay.retrying.retries import Outcome
from enginehouse.relay.retrying.retry_after import SAID_WITH


class FirstRefusal(NamedTuple):
    """The first refusal of an engine: the client gets it if no other engine says otherwise."""

    head: AnswerHead
    body: bytes
    route: Route
    share: EngineShare


class AnsweredExchange(MovableExchange):
    """An exchange, as far as it judges answers: of what model and kind they are, and whether another engine is asked.

    ``_joined``: the reply while engines follow each other in one stream. ``_overhead``: the seconds that the gateway
    took until the request was sent.
    """

    _hedge: Hedge | None = None
    _joined: JoinedReply | None = None
    _overhead: float = 0.0
    _refusal: FirstRefusal | None = None
    _served_model: str = ""
    _suspects: Suspects = ()

    @abstractmethod
    def _lost(self, error: RequestError) -> None:
        """Retry or continue the request elsewhere, or fail it: its engine did with ``error``."""

    @abstractmethod
    def _end(self, status: int, outcome: str, error: RequestError | None = None) -> None:
        """End the request."""

    def _turns_away(self, attempt: Attempt, body: bytes, complete: bool) -> bool:
        """Judge an answer whose body begins; whether the request is sent again instead, because of its status."""
        head, job = attempt.head, self.job
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
        head, route, job = attempt.head, attempt.route, self.job
        chosen = route.chosen
        assert head is not None
        if not (body or complete or (job.raw and head.status < 400)):
            return False
        if self._rest is not None and self._joined is not None:
            return self._accept(attempt, head, self._rest, self._joined)
        if complete and self._dispatch.goes_elsewhere(body):
            return False
        if self._misfits(attempt, head):
            return False
        must_be_json = self._must_be_json(head)
        if must_be_json and complete:
            problem, counted = read_answer(body, chosen.backend, may_be_error=self._reply.form.is_checked)
            if problem is not None:
                self._unfit(problem, chosen)
                return False
            self._reply.counted = counted
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
        chosen, job = route.chosen, self.job
        model = chosen.model
        if job.context.renames and not job.raw and (chosen.name_there or model) != (requested := route.requested):
            self._name_model(head, requested)
        if job.hides_usage and head.stream and head.status == 200:
            self._reply.hide_usage()
        origin = origin_lines(chosen.backend, model, route.reason._value_)  # .value takes 0.2 us in Python 3.10
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

    def _misfits(self, attempt: Attempt, head: AnswerHead) -> bool:
        """Whether the answer is none that the client understands. The request is then sent again instead, or fails."""
        job, reply = self.job, self._reply
        streams = job.requirements is not None and job.requirements.stream
        fits = head.status == 200 and (head.stream == streams or job.gathers)
        if fits or job.raw or reply.status or not reply.form.is_checked:
            return False
        misfit = why_misfit(head, attempt.upstream.name, streams=streams)
        if misfit is None:
            return False
        attempt.cancel()
        self._lost(misfit)
        return True

    def _unfit(self, problem: RequestError, chosen: Candidate) -> None:
        too_long = context_error(problem.details.get("error"), chosen, self.job.requirements)
        if too_long is not None:
            self.fail(too_long)
        else:
            self._lost(problem)

    def _name_model(self, head: AnswerHead, name: str) -> None:
        """Let the client find ``name`` in the answer: it knows the model by no other one."""
        if head.status < 300 and (head.stream or head.json):
            self._reply.name_model(name, stream=head.stream)

    def _must_be_json(self, head: AnswerHead) -> bool:
        """Whether the answer is JSON or bad: it says so, or it answers a chat or the like and is not a stream."""
        if head.status >= 300 or self.job.raw:
            return False
        return head.json or (not head.stream and not head.opaque and self._reply.form.is_checked)

    def _retries(self, attempt: Attempt, head: AnswerHead, body: bytes | None) -> bool:
        """Leave the request to another replica, because this one's answer is worth a retry; whether there is one.

        ``body``: of the answer, if it is whole.
        """
        if self._refusal is None and body is not None and head.status in REFUSALS:
            share = EngineShare(self.job.context.engine_memory, "answer", len(body))
            if not share.take(len(body)):
                self._refusal = FirstRefusal(head, body, attempt.route, share)
        if self._hedge is not None and self._hedge.takes_over("answered"):
            return True
        return self._dispatch.retry(Outcome.ANSWERED)

    def _accept(self, attempt: Attempt, head: AnswerHead, rest: ContinuationJob, reply: JoinedReply) -> bool:
        """Begin with the answer to a continuation, unless it is not a stream."""
        attempt.begins_answer(rest.context.clock.now())
        rest.judge(attempt.route, head.status, 0.0, ())
        if head.status != 200 or not head.stream:
            self._dispatch.try_otherwise()
            return False
        reply.accept(rest.translator)
        if reply.paused:
            attempt.pause()
        return True

    def _served(self, attempt: Attempt, status: int) -> None:
        """Tell that the engine's whole answer was good, and end the request, as soon as its client has the answer.

        What a door still holds keeps no place at the engine.
        """
        self._dispatch.job.served(attempt.route, status, self._suspects)
        self._reply.door.settle(self._settled)
        if not self._status:
            if status < 400 and self._joined is None:
                attempt.counted(self._reply.measure())
            self._served_model = attempt.route.chosen.model
            self._dispatch.leave("served")

    def _settled(self, error: RequestError | None) -> None:
        """End the request with what its client got: the engine's answer, or ``error``."""
        if self._status:
            return
        if error is None:
            self._end(self._reply.status, "served")
        else:
            self._end(error.status, error.code, error)
