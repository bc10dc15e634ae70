"""The second try of a stream that is slow to begin."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from enginehouse.domain.errors import RequestError, UpstreamError, UpstreamTimeout
from enginehouse.domain.replica import Reason, ReplicaState, Route
from enginehouse.interfaces.continuers import KeptStream
from enginehouse.relay.answers.engine_error import SAID_WITH
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.heads import AnswerHead
from enginehouse.relay.retries import HedgeDelay
from enginehouse.relay.upstream.connection import Receiver
from enginehouse.scheduling.request_queue import RequestQueue

_OVERTAKEN: Final = "overtaken"
"""The outcome of an attempt whose rival was first to begin."""


class Hedge:
    """Asks a second replica if a stream is slow to begin. The first answer that begins is the client's.

    The other one is cancelled in the same step. A try that fails meanwhile leaves the race to its rival, and only the
    last one's failure is a case for the retry decision. ``exchange`` sees one attempt at a time, that of ``dispatch``:
    the rival, which has its own place at its backend, takes its place or is dropped.
    """

    def __init__(self, dispatch: Dispatch, exchange: Receiver, delay: HedgeDelay) -> None:
        self._dispatch = dispatch
        self._exchange: Receiver | None = exchange
        self._delay = delay
        self._rival: Attempt | None = None
        self._history: KeptStream | None = None
        self._timer: asyncio.TimerHandle | asyncio.Task[None] | None = None

    # --- from the exchange

    def sent(self, attempt: Attempt) -> None:
        """Ask a second replica later, unless the answer of ``attempt`` begins in time."""
        job = self._dispatch.job
        assert job.requirements is not None
        # Without a stream, the first byte comes with the last one, and tells nothing of a slow engine.
        if not job.requirements.stream or job.prepares:
            return
        self._stop_timer()
        seconds = self._delay.of(attempt.route.chosen.model)
        if seconds is not None and self._rival is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def begins(self, attempt: Attempt, status: int) -> None:
        """Decide for ``attempt``, whose answer begins."""
        self._stop_timer()
        self._drop(_OVERTAKEN, "lost")
        if status == 200:
            self._observe(attempt)

    def saves(self, error: RequestError) -> bool:
        """Let the rival take the place of the current attempt, whose engine may be to blame for ``error``."""
        if self._rival is None or not isinstance(error, (UpstreamError, UpstreamTimeout)):
            return False
        self._dispatch.blame(error)
        return self.takes_over(error.code, error.message)

    def takes_over(self, outcome: str, why: str = "") -> bool:
        """Let the rival, if there is one, take the place of the current attempt, which ends with ``outcome``.

        ``why``: the message of its error.
        """
        rival = self._take("won")
        if rival is None:
            return False
        dispatch = self._dispatch
        current = dispatch.attempt
        if current is None:  # the request waits for its model again
            pass
        elif outcome != _OVERTAKEN:
            dispatch.exclude(current)
        elif current.sent_at:
            current.route.chosen.load.overtaken((dispatch.job.context.clock.now() - current.sent_at) * 1000)
        dispatch.replace(rival, outcome, why)
        dispatch.job.history = self._history
        if rival.connection is not None and self._exchange is not None:
            rival.connection.redirect(self._exchange)
        return True

    def end(self, outcome: str, why: str) -> None:
        """Drop the rival with ``outcome``, because of an error with the message ``why``: the request has ended."""
        self._stop_timer()
        self._drop(outcome, "lost", why)
        self._exchange = None  # otherwise the cycle of the two waits for the garbage collector

    # --- from the rival's connection

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        rival, exchange = self._rival, self._exchange
        assert exchange is not None
        if rival is None:  # it took over while it was connecting
            exchange.answer(head, body, complete)
            return
        rival.head = seen = head or rival.head
        if complete:
            rival.connection = None
        if not (body or complete):
            return
        assert seen is not None
        job = self._dispatch.job
        if seen.status != 200 or not seen.stream:
            if seen.status in SAID_WITH:
                job.context.asked_for_pause(rival.upstream.name, seen.lines)
            job.judge(rival.route, seen.status, job.context.clock.now() - rival.sent_at, ())
            self._drop("answered", "failed")
            return
        if self._dispatch.attempt is not None:
            self._observe(self._dispatch.attempt)
        self.takes_over(_OVERTAKEN)
        exchange.answer(seen, body, complete)

    def broken(self, why: str, *, stale: bool) -> None:
        rival, exchange = self._rival, self._exchange
        assert exchange is not None
        if rival is None:
            exchange.broken(why, stale=stale)
        elif stale:
            self._send(rival, reuse=False)
        else:
            error = rival.broken(why)
            self._dispatch.job.context.fleet.failed(rival.upstream.name, error.message)
            self._drop(error.code, "failed", error.message)

    # --- inside

    def _begin(self) -> None:
        self._timer = None
        job, now = self._dispatch.job, self._dispatch.job.context.clock.now()
        context = job.context
        if self._dispatch.attempt is None:  # it has failed, and the next one has not begun
            return
        if not context.budget.has_room(now):
            context.counters.retries_refused["hedge"] += 1
            return
        found = self._find_rival()
        if found is None:
            return
        queue = context.queue_of(found[0].chosen)
        if queue is None or queue.decides_here:
            self._race(*found, queue)
        else:
            self._timer = asyncio.ensure_future(self._race_with_place(*found, queue))

    async def _race_with_place(self, route: Route, body: bytes, queue: RequestQueue) -> None:
        current = self._dispatch.attempt
        try:
            await queue.reserve(route.chosen.replica)
        except RequestError:  # those who grant places are gone
            return
        self._timer = None
        if self._dispatch.attempt is current:
            self._race(route, body, queue)

    def _race(self, route: Route, body: bytes, queue: RequestQueue | None) -> None:
        """Send the request to a second replica, if there is a place."""
        job, context = self._dispatch.job, self._dispatch.job.context
        upstream = context.upstreams.get(route.chosen.backend)
        if upstream is None:  # a reload has removed it
            return
        rival = Attempt(route, upstream, job.began, body)
        if queue is not None and not rival.take_free_slot(queue, job):
            rival.end("unsent")
            return
        try:
            self._dispatch.carry_out(route)
        except RequestError:
            rival.end("unsent")
            return
        rival.follow()
        context.budget.take(context.clock.now())
        self._rival = rival
        self._send(rival, reuse=True)

    def _find_rival(self) -> tuple[Route, bytes] | None:
        """The way to another ready replica of the same model, and the body for it."""
        dispatch, job = self._dispatch, self._dispatch.job
        first, history = dispatch.current().route.chosen, job.history
        found = job.find_route((*dispatch.state.failed, first.replica))
        self._history, job.history = job.history, history
        if found is None:
            return None
        route, chosen = replace(found[0], reason=Reason.HEDGE), found[0].chosen
        if route.waits or chosen.state is not ReplicaState.READY or chosen.model != first.model:
            return None
        return route, found[1]

    def _send(self, rival: Attempt, *, reuse: bool) -> None:
        job = self._dispatch.job
        first = job.trace_lines
        if job.trace is not None:
            job.trace_lines = job.trace.lines(len(self._dispatch.attempts) + 1)
        request, job.trace_lines = job.request(rival.upstream, rival.body), first
        rival.send(self, request, reuse=reuse)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, outcome: str, result: str, why: str = "") -> None:
        rival = self._take(result)
        if rival is None:
            return
        if result == "failed":
            self._dispatch.exclude(rival)
        self._dispatch.attempts.append(rival.end(outcome, why))

    def _take(self, result: str) -> Attempt | None:
        rival, self._rival = self._rival, None
        if rival is not None:
            self._dispatch.job.context.counters.hedges[rival.upstream.name, result] += 1
        return rival

    def _observe(self, attempt: Attempt) -> None:
        if attempt.sent_at:
            now = self._dispatch.job.context.clock.now()
            self._delay.observe(attempt.route.chosen.model, now - attempt.sent_at)
