"""Moves a live stream to another engine on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from enginehouse.aio.timeouts import run_unless
from enginehouse.domain.errors import CannotContinue, NotFound
from enginehouse.domain.replica import Candidate, Health, ReplicaState
from enginehouse.domain.request_record import StreamGap
from enginehouse.interfaces.continuers import Continuer, KeptStream, Question
from enginehouse.interfaces.drivers import EngineClient
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.attempts.attempt import NEVER, Attempt, client_error
from enginehouse.relay.events.stream_check import BrokenStream
from enginehouse.relay.heads import AnswerHead
from enginehouse.relay.jobs.continuation_job import JoinedReply
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.live.live_request import MovedStream
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.connection import Receiver

T = TypeVar("T")


class MovableStream(Receiver, Protocol):
    """A live stream, as a move sees it. After a move, it is the ``Receiver`` of the destination.

    ``reply``: the answer for its client. ``attempt``: the one that serves it. ``attempts_ended``: how many have ended.
    """

    job: Job
    reply: Reply

    @property
    def attempt(self) -> Attempt | None: ...

    @property
    def attempts_ended(self) -> int: ...

    def movable(self) -> KeptStream:
        """The part that the client has. Raises ``CannotContinue`` with the reason why the stream stays where it is."""

    def hold(self) -> None:
        """Stop reading the source's answer: the cut."""

    def read_on(self) -> None:
        """Read on at the source: the move failed."""

    def adopt(self, attempt: Attempt, reply: JoinedReply) -> bool:
        """Leave the source for ``attempt`` and ``reply``. ``False`` if the stream has ended."""

    def spoil(self, attempt: Attempt, problem: BrokenStream) -> None:
        """Have another engine continue a stream that is not whole, or end it with an error."""

    def fail_alone(self, error: Exception) -> None:
        """End the stream because of ``error``, which is handled now."""


class Move:
    """One move of one stream. A ``StreamMove``.

    The source serves the stream until ``cut``. If the destination fails then, the gateway reads the source on, and the
    client notices nothing. ``cause``: who wants the move, for its trace.
    """

    def __init__(
        self, stream: MovableStream, source: Attempt, destination: str, engine_request: str, cause: str
    ) -> None:
        self._cause = cause
        self._stream = stream
        self._context = context = stream.job.context
        self._source = source
        self.candidate = candidate = self._candidate(destination)
        self.driver = context.drivers[destination].continuation
        self.engine_request = engine_request
        self.timeout = context.config.rescheduling.migrate_timeout
        upstream, needs = context.upstreams[destination], stream.job.requirements
        self.engine: EngineClient = Client(upstream, self.timeout)
        self.estimated_tokens = needs.estimated_tokens if needs is not None else 0
        self.now = context.clock.now
        route = replace(self._source.route, chosen=candidate, details=None, placement=None)
        self._attempt = Attempt(route, upstream, NEVER)
        self._question: Question | None = None
        self._reply: JoinedReply | None = None
        self._cut_at = self._gap_s = 0.0
        self._adopted = False
        # The reason for a failure, or "". Not an exception: that would refer to this move, and keep it.
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self, continuer: Continuer) -> MovedStream:
        """Have ``continuer`` move the stream. Raises a ``RequestError`` if it stays where it is."""
        try:
            await continuer.move(self._stream.movable(), self)
        finally:
            if not self._adopted:
                self._attempt.end("cancelled")
            self._reply = None  # which refers to this move
        if not self._adopted or self._question is None:
            raise CannotContinue("The stream stays where it is")
        source, destination, request_id = self._source.route.chosen, self.candidate, self._stream.job.request_id
        self._context.moved(request_id, source.backend, destination.backend, self._gap_s, self._question.way)
        return MovedStream(request_id.decode(), source.backend, destination.backend, round(self._gap_s * 1000, 1))

    def abandon(self) -> None:
        """Cancel the move: the stream has ended."""
        if not self._adopted:
            self._fail("was not needed: the stream has ended")

    # --- before anything is cut

    def _candidate(self, destination: str) -> Candidate:
        """The destination as a candidate. Raises ``CannotContinue`` if it cannot take requests now."""
        fleet, chosen = self._context.fleet, self._source.route.chosen
        if destination not in self._context.upstreams:
            raise NotFound(f"There is no backend '{destination}'")
        if destination == chosen.backend:
            raise CannotContinue(f"The stream is at backend '{destination}' already")
        serving = {each.backend: each for each in fleet.snapshot.candidates(chosen.model)}
        found = serving.get(destination)
        if found is None:
            raise CannotContinue(f"Backend '{destination}' does not serve '{chosen.model}'")
        needs = self._stream.job.requirements
        if needs is not None and (why := self._context.router.why_not(needs, found)):
            raise CannotContinue(f"The stream cannot move to backend '{destination}': {why}")
        if not self._context.drivers[destination].serves_alone(found.role):
            raise CannotContinue(f"Backend '{destination}' serves no request alone")
        if found.draining:
            raise CannotContinue(f"Backend '{destination}' is drained")
        if found.health is not Health.HEALTHY or found.state is not ReplicaState.READY:
            raise CannotContinue(f"Backend '{destination}' is not ready")
        return found

    def check(self) -> None:
        self._stream.movable()

    async def reserve(self) -> None:
        chosen = self.candidate
        queue = self._context.queue_of(chosen)
        if queue is not None:
            await queue.reserve(chosen.replica)
            if not self._attempt.take_free_slot(queue, self._stream.job):
                raise CannotContinue(f"Backend '{chosen.backend}' is full", retry_after=1)

    async def unless_ended(self, step: Coroutine[Any, Any, T]) -> T | None:
        result = await run_unless(self._end, step)
        if self._end.done():
            raise self._failed(self._end.result())
        return result

    # --- the cut

    async def cut(self, ask: Callable[[], Awaitable[Question]]) -> float:
        stream = self._stream
        stream.movable()
        if stream.attempt is not self._source:
            raise CannotContinue("The stream's engine broke while it was moved")
        stream.hold()
        self._cut_at = self.now()
        try:
            self._question = await ask()
            self._reply = JoinedReply(stream.reply, self._adopt)
            self._send()
            if why := await asyncio.wait_for(self._end, self.timeout):
                raise self._failed(why)
        except asyncio.TimeoutError:
            raise self._failed("was too slow") from None
        finally:
            if not self._adopted:
                stream.read_on()
        self._gap_s = self.now() - self._cut_at
        return self._gap_s

    def _send(self, *, reuse: bool = True) -> None:
        assert self._question is not None
        job, asked = self._stream.job, self._question
        if job.trace is not None:
            job.trace_lines = job.trace.lines(self._stream.attempts_ended + 1)  # the source's is the current one
        self._attempt.send(self, job.request(self._attempt.upstream, asked.body, asked.path), reuse=reuse)

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        try:
            self._answered(head, body, complete)
        except Exception as error:
            if self._adopted:  # a guard may refuse the text
                self._stream.fail_alone(error)
            else:  # the source still has the stream
                self._fail(f"cannot continue it: {client_error(error).message}")

    def _answered(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        attempt, reply, asked = self._attempt, self._reply, self._question
        assert reply is not None
        assert asked is not None
        if complete:
            attempt.connection = None
        if head is not None:
            attempt.head = head
            attempt.begins_answer(self.now())
            if head.status != 200 or not head.stream:
                self._fail(f"answered {head.status}")
                return
            reply.accept(asked.translator)
        problem = reply.write(body) if body else None
        if not self._adopted:
            if problem is not None or complete:
                self._fail(problem.why if problem is not None else "ended at once")
        elif problem is not None:
            self._stream.spoil(attempt, problem)
        elif complete:
            self._stream.answer(None, b"", True)

    def broken(self, why: str, *, stale: bool) -> None:
        if stale:
            self._send(reuse=False)
        else:
            self._fail(f"broke off: {why}")

    def _fail(self, why: str) -> None:
        self._attempt.cancel()
        if not self._end.done():
            self._end.set_result(why)

    def _failed(self, why: str) -> CannotContinue:
        return CannotContinue(f"Backend '{self._attempt.upstream.name}' {why}")

    def _adopt(self) -> bool:
        """Leave the source, unless the client has left: the destination has sent its first new event."""
        assert self._reply is not None
        if self._end.done() or not self._stream.adopt(self._attempt, self._reply):
            return False
        self._adopted = True
        self._attempt.gap = self._gap()
        if self._attempt.connection is not None:
            self._attempt.connection.redirect(self._stream)
        self._end.set_result("")
        return True

    def _gap(self) -> StreamGap:
        """The gap of the stream, which ends now."""
        asked, history, now = self._question, self._stream.reply.history, self.now()
        prompt = history.tokens().prompt if history is not None else None
        again = asked.translator.tokens if asked is not None and asked.translator is not None else 0
        tokens = 0 if self.engine_request else (prompt or 0) + again
        return StreamGap(self._cause, self._attempt.began, now - self._cut_at, now, tokens)
