"""Whether the client gets an engine's answer, or another engine is asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from enginehouse.domain.errors import EngineRefused, RequestError, UpstreamError, UpstreamInvalid
from enginehouse.domain.replica import Route
from enginehouse.fleet.health import REFUSALS, blamed_request, error_in
from enginehouse.relay.answers.engine_error import SAID_WITH, blamed_status, context_error
from enginehouse.relay.answers.json_in_pieces import JsonInPieces
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.attempts.hedge import Hedge
from enginehouse.relay.engine_memory import EngineShare
from enginehouse.relay.events.stream_check import message_of
from enginehouse.relay.events.stream_form import decode_event
from enginehouse.relay.heads import ATTEMPTS, AnswerHead
from enginehouse.relay.jobs.job import Job, Suspects
from enginehouse.relay.retries import Outcome
from enginehouse.telemetry.answer_meter import tokens_in
from enginehouse.telemetry.counted_answers import Counted, check_answer, decode_answer, skim

_SERVER_ERROR: Final = 500


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
        blamed = blamed_status(body) if complete and head.status >= _SERVER_ERROR else 0
        judged = blamed or head.status
        self.suspects = job.judge(attempt.route, judged, now - attempt.sent_at, self.suspects)
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

    def problem(self, attempt: Attempt, reply: Reply, body: bytes, complete: bool) -> RequestError | None:
        """The error in place of an answer that its client cannot read; ``None`` if it can, as far as that is known.

        ``reply`` learns what the engine counted in JSON that is ``complete``, and follows other JSON to its end. JSON
        in place of a stream may say what is wrong.
        """
        head, job = attempt.head, self._job
        assert head is not None
        if job.raw:
            return None
        chosen, is_checked = attempt.route.chosen, reply.form.is_checked
        streams = job.requirements is not None and job.requirements.stream
        fits = head.status == 200 and (head.stream == streams or job.gathers)
        misfit = None if fits or reply.status or not is_checked else why_misfit(head, chosen.backend, streams=streams)
        may_be_json = head.json or (misfit is None and is_checked and not (head.stream or head.opaque))
        if head.status >= 300 or not may_be_json or not (complete or misfit is None):
            return misfit
        if not complete:
            reply.json = JsonInPieces()
            return None
        found, counted = read_answer(body, chosen.backend, may_be_error=is_checked)
        if found is not None:
            return context_error(found.details.get("error"), chosen, job.requirements) or found
        if misfit is None and counted is not None:
            reply.is_read = True
            if counted.usage is not None or counted.timings is not None:
                reply.tokens = tokens_in(counted)
        return misfit


def why_misfit(head: AnswerHead, backend: str, *, streams: bool) -> UpstreamInvalid | None:
    """The error that clients get instead of an answer with ``head`` to a chat or the like; ``None`` if it may be one.

    A client cannot follow a redirect to an engine, finds nothing in an answer without a body (204), and one that wants
    a stream (``streams``) sees nothing in JSON, one that wants none nothing in a stream.
    """
    if head.status == 204 or 300 <= head.status < 400:
        return UpstreamInvalid(f"Backend '{backend}' answered {head.status}, which is not an answer to this request")
    if head.status < 300 and head.json and streams:
        return UpstreamInvalid(f"Backend '{backend}' sent no stream, which was asked for")
    if head.status == 200 and head.stream and not streams:
        return UpstreamInvalid(f"Backend '{backend}' sent a stream, which was not asked for")
    return None


def read_answer(body: bytes, backend: str, *, may_be_error: bool) -> tuple[RequestError | None, Counted | None]:
    """The error that clients get instead of ``body``, an answer of status 200 that must be JSON; ``None`` if it is fit.

    Beside it, what the engine counted. ``may_be_error``: a field ``error`` says that the engine has failed, or that it
    blames the request.
    """
    if not may_be_error:
        return None if is_json(body) else _no_json(backend), None
    try:
        if not body.isascii():
            body.decode()
        return None, decode_answer(body)
    except (ValueError, RecursionError):
        return _problem(body, backend), None


def _problem(body: bytes, backend: str) -> RequestError | None:
    if _reads(check_answer, body):  # an object without an error, whatever it counts; checking is faster than reading
        reason = decode_event(body).broken_off
        return UpstreamError(f"Backend '{backend}' broke its answer off: finish_reason '{reason}'") if reason else None
    try:
        answer = json.loads(body.decode())
    except (ValueError, RecursionError):
        return _no_json(backend)
    error = error_in(answer) if isinstance(answer, dict) else None
    if error is None and isinstance(answer, dict) and "choices" not in answer:
        told = isinstance(answer.get("message"), str) or answer.get("detail") is not None
        error = answer if told else None
    if error is None:
        return None
    why = f"Backend '{backend}' answered with an error: {message_of(error)}"
    blamed, details = blamed_request(error), {"error": error}
    return EngineRefused(blamed, why, details) if blamed else UpstreamError(why, details=details)


def _no_json(backend: str) -> UpstreamInvalid:
    return UpstreamInvalid(f"Backend '{backend}' sent an answer that is not JSON")


def is_json(body: bytes) -> bool:
    """Whether clients can read ``body`` as JSON. Python takes ``NaN`` and lone surrogates, which its engines send."""
    return _reads(skim, body) or _reads(json.loads, body)


def _reads(reader: Callable[[bytes], object], body: bytes) -> bool:
    try:
        if not body.isascii():
            body.decode()  # a decoder does not look into the texts that it passes over
        reader(body)
    except (ValueError, RecursionError):
        return False
    return True
