"""Whether the client gets an engine's answer, or another engine is asked."""

from __future__ import annotations

from typing import NamedTuple

from enginehouse.domain.errors import RequestError
from enginehouse.domain.route import Route
from enginehouse.fleet.verdicts import REFUSALS
from enginehouse.relay.answers.engine_error import context_error
from enginehouse.relay.answers.json_answer import read_answer, why_misfit
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.attempts.hedge import Hedge
from enginehouse.relay.engine_memory import EngineShare
from enginehouse.relay.heads.headers import ATTEMPTS, AnswerHead
from enginehouse.relay.jobs.job import Job, Suspects
from enginehouse.relay.retrying.retries import Outcome
from enginehouse.relay.retrying.retry_after import SAID_WITH
from enginehouse.telemetry.counted_answers import Counted


class FirstRefusal(NamedTuple):
    """The first refusal of an engine: the client gets it if no other engine says otherwise."""

    head: AnswerHead
    body: bytes
    route: Route
    share: EngineShare


class AnswerJudge:
    """Judges the answers to one request, before its client has anything of them.

    - ``refusal``: set once an engine has refused the request and another one was asked.
    - ``suspects``: engines that refused the request, which count only if another one serves it.
    """

    __slots__ = ("_dispatch", "_hedge", "_job", "refusal", "suspects")

    def __init__(self, job: Job, dispatch: Dispatch, hedge: Hedge | None) -> None:
        self._job = job
        self._dispatch = dispatch
        self._hedge = hedge
        self.refusal: FirstRefusal | None = None
        self.suspects: Suspects = ()

    def turns_away(self, attempt: Attempt, body: bytes, complete: bool) -> bool:
        """Judge an answer whose body begins; whether the request is sent again instead, because of its status."""
        head, job = attempt.head, self._job
        assert head is not None
        if complete and head.status >= 400 and self._dispatch.goes_elsewhere(body):
            return True
        now = job.context.clock.now()
        attempt.begins_answer(now)
        self.suspects = job.judge(attempt.route, head.status, now - attempt.sent_at, self.suspects)
        if head.status < 400:
            return False
        if head.status in SAID_WITH:
            job.context.asked_for_pause(attempt.route.chosen.backend, head.lines)
        if head.status not in job.retry_statuses or ATTEMPTS in head.lines:  # a gateway there has tried its engines
            return False
        return self._retries(attempt, head, body if complete else None)

    def _retries(self, attempt: Attempt, head: AnswerHead, body: bytes | None) -> bool:
        """Leave the request to another replica, because this one's answer is worth a retry; whether there is one.

        ``body``: of the answer, if it is whole.
        """
        if self.refusal is None and body is not None and head.status in REFUSALS:
            share = EngineShare(self._job.context.engine_memory, "answer", len(body))
            if not share.take(len(body)):
                self.refusal = FirstRefusal(head, body, attempt.route, share)
        if self._hedge is not None and self._hedge.takes_over("answered"):
            return True
        return self._dispatch.retry(Outcome.ANSWERED)

    def misfit(self, attempt: Attempt, reply: Reply, head: AnswerHead, body: bytes | None) -> RequestError | None:
        """The error for an answer of a kind that the client does not understand; ``None`` if it does.

        ``body``: of the answer, if it is whole. JSON in place of a stream may say what is wrong.
        """
        job = self._job
        streams = job.requirements is not None and job.requirements.stream
        fits = head.status == 200 and (head.stream == streams or job.gathers)
        if fits or job.raw or reply.status or not reply.form.is_checked:
            return None
        misfit = why_misfit(head, attempt.upstream.name, streams=streams)
        if misfit is None or body is None or not head.json or head.status >= 300:
            return misfit
        return self._read(attempt, reply, body)[0] or misfit

    def must_be_json(self, reply: Reply, head: AnswerHead) -> bool:
        """Whether the answer is JSON or bad: it says so, or it answers a chat or the like and is not a stream."""
        if head.status >= 300 or self._job.raw:
            return False
        return head.json or (not head.stream and not head.opaque and reply.form.is_checked)

    def read(self, attempt: Attempt, reply: Reply, body: bytes) -> RequestError | None:
        """Have ``reply`` know what the engine counted, in an answer that must be JSON; the error if it is not."""
        problem, counted = self._read(attempt, reply, body)
        if problem is None:
            reply.counted = counted
        return problem

    def _read(self, attempt: Attempt, reply: Reply, body: bytes) -> tuple[RequestError | None, Counted | None]:
        chosen = attempt.route.chosen
        problem, counted = read_answer(body, chosen.backend, may_be_error=reply.form.is_checked)
        if problem is not None:
            problem = context_error(problem.details.get("error"), chosen, self._job.requirements) or problem
        return problem, counted

    def release(self) -> None:
        """The request has ended: hold nothing any more."""
        if self.refusal is not None:
            self.refusal.share.give_back()
