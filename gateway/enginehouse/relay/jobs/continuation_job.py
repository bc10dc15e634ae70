"""Continues a stream as a job for another engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from enginehouse.domain.errors import CannotContinue, RequestError, UpstreamError
from enginehouse.domain.replica import Route
from enginehouse.domain.request_record import StreamGap
from enginehouse.domain.requirements import Requirements
from enginehouse.fleet.health import EngineVerdict, verdict
from enginehouse.interfaces.authenticators import AdmittedCaller
from enginehouse.interfaces.continuers import AnswerDiffers, ContinuationWay, Continuer, KeptStream, Rest, Translator
from enginehouse.relay.answers.reply import Reply
from enginehouse.relay.events.sse import is_whole, whole_events
from enginehouse.relay.events.stream_check import BrokenStream, StreamCheck
from enginehouse.relay.events.stream_form import stream_form
from enginehouse.relay.heads import AnswerHead
from enginehouse.relay.jobs.job import Job, Suspects
from enginehouse.relay.upstream.client import Client
from enginehouse.relay.upstream.upstream import Upstream

_TIMEOUT_S: Final = 5.0
"""The time limit of a driver's question to an engine."""


class ContinuationJob(Job):
    """The rest of ``job``, whose stream an engine broke off: for another engine of the same model.

    At each engine, the ways of ``Continuer.rest`` are tried in order until one is answered as it should be.

    - ``translator``: of the answer to the current try.
    - ``reply``: joins that answer to what the client has.
    """

    method = "POST"
    repeatable = True
    raw = False
    fallbacks = False
    prepares = True
    continues = True
    reply: JoinedReply
    retry_statuses: ClassVar[frozenset[int]] = frozenset()  # another way at the same engine comes first

    def __init__(self, job: Job, history: KeptStream, continuer: Continuer, model: str, tries_before: int) -> None:
        super().__init__(job.context, job.path, job.headers, job.request_id)
        assert job.requirements is not None
        self.began = job.began
        self.trace, self.trace_id, self.trace_lines = job.trace, job.trace_id, job.trace_lines
        self.caller = job.caller
        self.keep_alive = job.keep_alive
        self.requirements = job.requirements.at(model)
        self.history = self._stream = history
        self._most = tries_before + job.context.config.routing.max_continuations
        self._rule = self.broken_stream(model)
        self.translator: Translator | None = None
        self._way: ContinuationWay = "tokens"
        self._continuer = continuer
        self._rest: Rest | None = None
        self._route: Route | None = None
        self._cause: RequestError | None = None
        self._broke_at = 0.0

    @property
    def is_joined(self) -> bool:
        """Whether the current try has brought something new for the client."""
        return self.translator is None or self.translator.has_begun

    def broke(self, cause: RequestError, before: Reply, on_joined: Callable[[], bool]) -> None:
        """Note that an engine broke the stream off just now, of which ``before`` was the last reply.

        ``on_joined``: as for ``JoinedReply``.
        """
        self._cause = cause
        self._broke_at = self.context.clock.now()
        self._route = None
        self.reply = JoinedReply(before, on_joined)

    def accepts(self, route: Route, head: AnswerHead) -> bool:
        """Begin the reply with an answer that begins, unless it is not a stream; whether it is."""
        self.judge(route, head.status, 0.0, ())
        if head.status != 200 or not head.stream:
            return False
        self.reply.accept(self.translator)
        return True

    def joined(self) -> StreamGap:
        """Count the stream as continued. Returns the gap."""
        assert self._route is not None
        now, prompt = self.context.clock.now(), self._stream.tokens().prompt or 0
        gap = now - self._broke_at
        self.context.counters.continued(self._route.chosen.backend, "broken", self._way, gap)
        again = prompt + self.translator.tokens if self.translator is not None else prompt
        return StreamGap("broken", self._broke_at, gap, now, again)

    def failed(self, error: RequestError) -> RequestError:
        """Count the stream as broken for good. Returns the error for its client, in which ``error`` comes last."""
        cause = self._cause
        if cause is None or not isinstance(error, CannotContinue):
            return error
        return UpstreamError(f"{cause.message}. {error.message}", details=cause.details)

    @property
    def max_retries(self) -> int:
        return self._most

    def _needs(self, caller: AdmittedCaller | None) -> Requirements:
        assert self.requirements is not None
        return self.requirements

    def route(self, failed: tuple[str, ...], *, alone: bool = False) -> Route:
        """A route to the same model, because another one would give another answer."""
        assert self.requirements is not None
        model = self.requirements.model
        route = super().route(failed, alone=alone)
        if route.chosen.model != model:
            raise CannotContinue(f"No other backend serves '{model}'")
        return route

    def body_for(self, route: Route) -> bytes:
        return b""  # ``prepare`` makes it, when the engine is ready

    async def prepare(self, route: Route) -> bytes:
        """The request that tries the next way to continue the stream at the engines of ``route``.

        Raises ``CannotContinue`` when there is none left.
        """
        context, chosen = self.context, route.chosen
        if route is not self._route or self._rest is None:
            self._route = route
            self._rest = self._continuer.rest(self._stream, self._rule)
        upstream = context.upstreams.get(chosen.backend)
        if upstream is None:
            raise CannotContinue(f"Backend '{chosen.backend}' cannot continue it: the configuration no longer has it")
        driver = context.drivers[chosen.backend].continuation
        asked = await self._rest.ask(chosen, driver, Client(upstream, _TIMEOUT_S))
        self._way, self.translator = asked.way, asked.translator
        return asked.body

    @property
    def engine_path(self) -> str:
        return self.path if self.translator is None else self.translator.path

    def request(self, upstream: Upstream, body: bytes, path: str = "") -> bytes:
        return super().request(upstream, body, self.engine_path)

    def judge(self, route: Route, status: int, first_byte: float, suspects: Suspects) -> Suspects:
        """Only servers' errors count: the request is the gateway's own, and its time no measure of others."""
        if verdict(status) in (EngineVerdict.UNSURE, EngineVerdict.FAILED):
            self.context.fleet.failed(route.chosen.backend, f"answered {status} to a continuation")
        return suspects

    def served(self, route: Route, status: int, suspects: Suspects) -> None:
        self.context.fleet.succeeded(route.chosen.backend)


_DIFFERS: Final = BrokenStream("does not continue where the stream broke off", 0, differs=True)


class JoinedReply(Reply):
    """Takes the answer to a continuation, and passes it on as the rest of the stream that ``before`` passed on.

    ``accept`` begins it, and ``on_joined`` is called before the first that is new to the client passes; it says whether
    that may pass. Without a translator nothing of the stream has passed yet, and the answer passes as it comes.
    """

    def __init__(self, before: Reply, on_joined: Callable[[], bool]) -> None:
        super().__init__(before.writer, before.form)
        self._stream = True
        self.status = before.status
        self.paused = before.paused
        self.history = before.history
        self.filters, self.captured = before.filters, before.captured
        self.translator: Translator | None = None
        self._meter = before._meter
        self._on_joined: Callable[[], bool] | None = on_joined

    def release(self) -> None:
        """Drop the callback, which refers to the exchange of this reply: their cycle would wait for the collector."""
        self._on_joined = None

    def accept(self, translator: Translator | None) -> None:
        """Begin an answer, which is a stream."""
        self.begun = True
        self.translator = translator
        self._held = b""
        form = self.form if translator is None else stream_form(translator.path)
        self._check = StreamCheck(form)

    def write(self, body: bytes) -> BrokenStream | None:
        if self.translator is None:
            return super().write(body)
        if self._held or not is_whole(body):
            body, self._held = whole_events(self._held + body)
        assert self._check is not None
        return self._translate(self.translator, body, self._check.look(body) if body else None)

    def finish(self, body: bytes) -> BrokenStream | None:
        if self.translator is None:
            return super().finish(body)
        assert self._check is not None
        body = self._held + body
        problem = self._translate(self.translator, body, self._check.end(body))
        if problem is None:
            self.end(b"")
        return problem

    def _translate(self, translator: Translator, body: bytes, problem: BrokenStream | None) -> BrokenStream | None:
        """Pass on what is good of ``body``, whose ``problem`` is known. Returns that, or what comes before it."""
        if problem is not None:
            body = body[: problem.good]
        events: list[bytes] = []
        had_begun = translator.has_begun
        try:
            events.extend(translator.translate(body))  # what comes before an error stays
        except (AnswerDiffers, ValueError, RecursionError):
            problem = _DIFFERS
        if translator.has_begun and not had_begun:
            on_joined, self._on_joined = self._on_joined, None  # as in ``release``
            if on_joined is None or not on_joined():
                return _DIFFERS
        if written := b"".join(events):
            if self._meter is not None:
                self._meter.add(written)
            self._send(written)
        self.is_over = self.history is not None and self.history.ended
        return problem
