"""One try of a request at one backend."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from enginehouse.config.schema import TimeoutSettings
from enginehouse.domain.errors import Overloaded, RequestError, UpstreamError, UpstreamTimeout
from enginehouse.domain.explanation import PrefixFacts
from enginehouse.domain.replica import Route
from enginehouse.domain.request_facts import AttemptFacts
from enginehouse.domain.request_record import StreamGap
from enginehouse.domain.tokens import Tokens
from enginehouse.interfaces.strategies import Placement
from enginehouse.relay.engine_memory import HeldAnswer
from enginehouse.relay.heads import AnswerHead
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.jobs.pairs import PrefillSlot
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.upstream.connection import Connection, Receiver
from enginehouse.relay.upstream.upload import Upload, UploadTurn
from enginehouse.relay.upstream.upstream import Upstream
from enginehouse.scheduling.request_queue import RequestQueue
from enginehouse.telemetry.answer_meter import AnswerSize

_log = logging.getLogger("enginehouse.relay")
NEVER: Final = float("inf")
_UNFOLLOWED: Final = Placement()
"""That of a strategy which does not follow its requests."""
_ENDS_WITHIN_S: Final = 1.0
"""An engine ends its answer together with its last event. Some never do."""


class Attempt:
    """One try of a request: its share of the backend's load, its queue slot, its connection and its current time limit.

    Times are in seconds of the gateway's clock. Call ``end`` once.

    - ``body``: of the request, as the engine gets it; empty once the answer begins.
    - ``slot``: only where the backend has a queue.
    - ``granted_at``, ``sent_at`` and ``answered_at``, when the body of the answer began, are 0 until then.
    - ``connection``: set while the request is under way on it.
    - ``since``: when the limit for all of the answer starts.
    - ``client_deadline``: until when a client that holds the answer up must read on.
    - ``prompt``: has another engine read the prompt meanwhile.
    - ``gap``: set when it has continued a stream that another attempt began.
    """

    def __init__(self, route: Route, upstream: Upstream, since: float, body: bytes = b"") -> None:
        self.began = upstream.clock.now()
        self.body = body
        self.route = route
        self.upstream = upstream
        self.slot: QueueSlot | None = None
        self.head: AnswerHead | None = None
        self.connection: Connection | None = None
        self.prompt: PrefillSlot | None = None
        self.gap: StreamGap | None = None
        self.granted_at = self.sent_at = self.answered_at = 0.0
        self.deadline = self.client_deadline = NEVER
        self._pieces = 0
        self._held: HeldAnswer | None = None
        total = upstream.limits.get(route.chosen.model, upstream.timeouts).total  # a call would cost each request more
        self.total_deadline = since + total if total else NEVER
        self._task: asyncio.Task[None] | None = None
        self._limit = 0.0
        self._awaited = ""
        self._shortage: Overloaded | None = None
        self._heard = False
        self._load = load = route.chosen.load
        load.begin()
        self._placement: Any = _UNFOLLOWED if route.placement is None else route.placement
        self._placement.queued()

    @property
    def limits(self) -> TimeoutSettings:
        """The time limits in force."""
        return self.upstream.limits.get(self.route.chosen.model, self.upstream.timeouts)

    @property
    def waiting_since(self) -> float | None:
        """Since when an unsent request waits, on the queue's clock; ``None`` if it was sent or has no slot."""
        return None if self.slot is None or self.sent_at else self.slot.ticket.arrived

    @property
    def advanced(self) -> bool:
        """Whether more of the answer has come since a time limit was last set."""
        return self.connection is not None and self.connection.pieces > self._pieces

    def follow(self) -> None:
        """Tell the placement of the route, which is carried out only now, how far the request is."""
        self._placement = placement = _UNFOLLOWED if self.route.placement is None else self.route.placement
        placement.queued()
        if self.granted_at:
            placement.granted()

    def send(self, receiver: Receiver, request: bytes, *, reuse: bool, upload: Upload | None = None) -> None:
        """Send ``request``, on a kept connection if ``reuse`` and there is one, and then ``upload`` as it comes."""
        self.connection = None
        # If a kept connection breaks just then, it is unknown whether the request arrived.
        connection = self.upstream.pool.take() if reuse else None
        if connection is not None:
            self._send_on(connection, receiver, request)
        else:
            self._limit_to(self.limits.connect, "could not be reached")
            self._task = asyncio.ensure_future(self._connect(receiver, request, upload))

    def hand_out(self) -> None:
        """Note that the request goes to the engine now, on somebody else's connection."""
        if self.slot is None:
            self._placement.granted()
        self.sent_at = self.upstream.clock.now()

    def begins_answer(self, now: float) -> None:
        """Note that the body of the answer begins ``now``. The request is not sent again, so its body is freed."""
        self.answered_at, self.body = now, b""
        if not self._heard and (self.head is None or self.head.status < 400):
            self._heard = True
            self._placement.first_byte()

    def cache_line(self) -> bytes:
        """The header line that says how much of the prompt was cached; empty if the strategy does not know."""
        prefix: PrefixFacts | None = self._placement.prefix
        if prefix is None:
            return b""
        return b"x-enginehouse-cache: hit=%d/%d; why=%s\r\n" % (prefix.cached, prefix.tokens, prefix.why.encode())

    def counted(self, answer: AnswerSize) -> None:
        """Note the size of the answer, which is whole and good."""
        _, events, tokens = answer
        if self._heard and self.gap is None:
            if tokens is None and events:
                tokens = Tokens(0, events)
            if tokens is not None:
                self._placement.counted(tokens)

    def take_free_slot(self, queue: RequestQueue, job: Job) -> bool:
        """Take a slot of ``queue`` if one is free now; whether it was."""
        ticket = job.ticket(self.route.chosen.replica, queue.now(), waits=False)
        self.slot = slot = QueueSlot(self, queue, ticket)
        slot.take()
        return slot.is_granted

    def granted(self) -> None:
        """Note that the queue granted the attempt. The limit for all of the answer starts now."""
        self.granted_at = now = self.upstream.clock.now()
        self._placement.granted()
        total = self.limits.total
        self.total_deadline = now + total if total else NEVER

    def rejected(self, error: RequestError) -> None:
        """No slot was free, which ``take_free_slot`` says."""

    def hold(self, piece: bytes, most: int, *, complete: bool) -> bytes:
        """Hold a piece of the answer until it is whole, if clients have no use for a part of it.

        Returns all that may pass now: once it is ``complete``, has more than ``most`` bytes, or there is no room left.
        """
        head, held = self.head, self._held
        assert head is not None
        if held is None:
            if complete or not head.at_once or (head.length or 0) > most:
                return piece
            self._held = held = HeldAnswer(self.upstream.outside.engine_memory, "answer", most)
        if not complete and len(held.body) + len(piece) <= most and not held.add(piece):
            return b""
        self._held = None
        return held.take() + piece

    def await_more(self) -> None:
        """Apply the limit for the next piece of the answer."""
        self._limit_to(self.limits.stall, "did not continue its answer")

    def await_end(self, now: float) -> None:
        """Apply the limit for the end of an answer whose last event has come by ``now``."""
        self.deadline = min(self.deadline, now + _ENDS_WITHIN_S)

    def await_client(self) -> None:
        """Apply the limit for the client to read on."""
        limit = self.limits.client
        self.client_deadline = self.upstream.clock.now() + limit if limit else NEVER

    def broken(self, why: str) -> RequestError:
        """Note that the connection broke, or could not be made; the error that says so."""
        if self._shortage is not None:
            return self._shortage
        how = "could not be reached" if self.connection is None else "broke off"
        self.connection = None
        if self.slot is not None:
            self.slot.in_doubt = True
            if self.slot.unloaded:
                why = "an operator unloaded its model"
        return UpstreamError(f"Backend '{self.upstream.name}' {how}: {why}")

    def expire_total(self) -> UpstreamTimeout:
        """The error that says that ``total_deadline`` has passed."""
        return UpstreamTimeout(f"Backend '{self.upstream.name}' did not finish within {self.limits.total:g} s")

    def expire(self) -> UpstreamTimeout:
        """Cancel the attempt because ``deadline`` has passed; the error that says so."""
        self.cancel()
        return UpstreamTimeout(f"Backend '{self.upstream.name}' {self._awaited} within {self._limit:g} s")

    def find_out(self, report: Callable[[bool], None]) -> None:
        """Wait for news of the engine that broke the request off, and ``report`` whether it exited.

        The queue slot is held until then.
        """
        self._lift_limit()
        self._task = asyncio.ensure_future(self._find_out(report))

    def work(self, steps: Callable[[Attempt], Awaitable[None]], report: Callable[[RequestError | None], None]) -> None:
        """Take ``steps``, which have time limits of their own, and ``report`` the ``RequestError`` that they raise."""
        self._lift_limit()
        self._task = asyncio.ensure_future(self._work(steps, report))

    def pause(self) -> None:
        """Stop reading the answer. Meanwhile the engine's stall limit does not run."""
        self.await_client()
        if self.connection is not None:
            self.connection.pause()
            self._lift_limit()

    def resume(self) -> None:
        """Read on."""
        self.client_deadline = NEVER
        if self.connection is not None:
            self.connection.resume()
            self.await_more()

    def cancel(self) -> None:
        """Abort the request at the engine, without another call of the receiver."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self.connection is not None:
            self.connection.abort()
            self.connection = None
        if self.prompt is not None:
            self.prompt.cancel()

    def end(self, outcome: str, why: str = "") -> AttemptFacts:
        """End the attempt: abort what is under way, and give back its share of the load and its queue slot.

        Returns what is known of it. ``why``: the message of its error.
        """
        facts = self.facts(outcome, why)
        if self.connection is not None or self._task is not None or self.prompt is not None:
            self.cancel()
        self._load.end()
        if self._held is not None:
            self._held.drop()
        self._placement.ended()
        slot, self.slot = self.slot, None  # otherwise the cycle of the two waits for the garbage collector
        if slot is not None:
            slot.release()
        return facts

    def facts(self, outcome: str, why: str = "") -> AttemptFacts:
        """What is known of the attempt as it is now, with ``outcome``."""
        facts, route, upstream = AttemptFacts(), self.route, self.upstream
        chosen = route.chosen
        facts.backend, facts.driver = upstream.name, upstream.driver
        facts.replica, facts.model = chosen.replica, chosen.model
        facts.reason, facts.attempted, facts.details = route.reason, route.attempted, route.details
        facts.outcome, facts.why = outcome, why
        facts.status = self.head.status if self.head is not None else 0
        facts.queued = self.slot is not None
        facts.began, facts.granted, facts.sent = self.began, self.granted_at, self.sent_at
        facts.first_byte, facts.ended = self.answered_at, upstream.clock.now()
        facts.gap = self.gap
        facts.prefix = self._placement.prefix
        return facts

    def _send_on(self, connection: Connection, receiver: Receiver, request: bytes) -> None:
        self.connection = connection
        # Before: the engine's own span may begin while this process waits.
        if self.slot is None and not self.sent_at:
            self._placement.granted()
        upstream = self.upstream
        self.sent_at = now = upstream.clock.now()
        connection.send(receiver, request)
        self._limit = limit = upstream.limits.get(self.route.chosen.model, upstream.timeouts).first_byte
        self._awaited = "did not begin to answer"
        self._pieces = 0
        self.deadline = now + limit if limit else NEVER

    async def _connect(self, receiver: Receiver, request: bytes, upload: Upload | None) -> None:
        try:
            connection = await self.upstream.pool.connect(keep=upload is None)
        except (UpstreamError, Overloaded) as error:
            self._task = None
            self._shortage = error.with_traceback(None) if isinstance(error, Overloaded) else None
            receiver.broken(str(error), stale=False)
            return
        self._task = None
        self._send_on(connection, receiver, request)
        if upload is not None:
            upload.begin(connection, self._uploading)

    def _uploading(self, turn: UploadTurn) -> None:
        """Apply the limit of the side that the upload waits for. The connection has its own for the client."""
        timeouts = self.limits
        if turn is UploadTurn.CLIENT:
            self._lift_limit()
        elif turn is UploadTurn.ENGINE:
            self._limit_to(timeouts.stall, "did not take the request")
        elif self.head is None:
            self._limit_to(timeouts.first_byte, "did not begin to answer")

    def _limit_to(self, limit: float, awaited: str) -> None:
        """Limit the time; 0 means no limit. ``awaited``: what did not happen in time, for the error."""
        self._limit = limit
        self._awaited = awaited
        self._mark_progress()
        self.deadline = self.upstream.clock.now() + limit if limit else NEVER

    def _lift_limit(self) -> None:
        self._mark_progress()
        self.deadline = NEVER

    def _mark_progress(self) -> None:
        self._pieces = self.connection.pieces if self.connection is not None else 0

    async def _work(
        self, steps: Callable[[Attempt], Awaitable[None]], report: Callable[[RequestError | None], None]
    ) -> None:
        problem: RequestError | None = None
        try:
            await steps(self)
        except RequestError as error:
            problem = error.with_traceback(None)
        except Exception:
            problem = defect()
        self._task = None
        report(problem)
        problem = None  # the traceback of its cause may lead to this frame

    async def _find_out(self, report: Callable[[bool], None]) -> None:
        assert self.slot is not None
        exited = await self.slot.engine_exited()
        self._task = None
        report(exited)


def client_error(error: Exception) -> RequestError:
    """``error``, which is handled now, as its client gets it. Logs it if it is none of the client's."""
    return error.with_traceback(None) if isinstance(error, RequestError) else defect()


def defect(what: str = "a request met a defect of the gateway") -> RequestError:
    """Log the exception that is handled now, which is not the client's fault. Returns the client's error."""
    _log.exception(what)
    return RequestError("Internal error; see the gateway's log")
