"""Takes a job to an engine, and a slow stream to a second one as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from enginehouse.domain.errors import Overloaded, RequestError
from enginehouse.domain.replica import ReplicaState
from enginehouse.relay.attempts.attempt import Attempt
from enginehouse.relay.attempts.dispatch import Dispatch
from enginehouse.relay.attempts.hedge import Hedge
from enginehouse.relay.heads.answer_head import AnswerHead
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.upstream.connection import Receiver

_OVERTAKEN: Final = "overtaken"
"""The outcome of an attempt whose rival was first to begin."""


class HedgedDispatch(Dispatch):
    """Asks a second replica if a stream is slow to begin. The first answer that begins is the client's.

    The other one is cancelled in the same step. A try that fails meanwhile leaves the race to its rival, and only the
    last one's failure is a case for the retry decision. It stands between the connections and the exchange, which it
    shows one attempt at a time.
    """

    __slots__ = ("_exchange", "_hedge", "_timer")

    def __init__(self, job: Job, receiver: Receiver, fail: Callable[[RequestError], None]) -> None:
        super().__init__(job, self, fail)
        self._exchange: Receiver | None = receiver
        self._hedge: Hedge | None = None
        self._timer: asyncio.TimerHandle | None = None

    def lost(self, error: RequestError) -> None:
        if self._hedge is None or isinstance(error, Overloaded):
            super().lost(error)
        else:
            self._blame(error)
            self._leave_to_hedge(error.code)

    def cancel(self) -> None:
        super().cancel()
        self._stop_timer()
        if self._hedge is not None:
            self._hedge.attempt.cancel()

    def end(self, outcome: str) -> None:
        self._stop_timer()
        self._drop_hedge(outcome, "lost")
        self._exchange = None
        super().end(outcome)

    # --- the first try

    def _send_now(self) -> None:
        super()._send_now()
        job, requirements = self.job, self.job.requirements
        assert requirements is not None
        delay = job.context.hedging
        if delay is None or not requirements.stream or job.prepares or job.raw:
            return
        seconds = delay.of(self._current().route.chosen.model)
        self._stop_timer()
        if seconds is not None and self._hedge is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._begin_hedge)

    def answer(self, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        attempt = self._current()
        exchange, seen = self._exchange, head or attempt.head
        assert exchange is not None
        assert seen is not None
        if body or complete:
            if self._hedge is not None and seen.status in self.job.retry_statuses:
                attempt.head = seen
                if complete:
                    attempt.connection = None
                self._judge(attempt)
                self._leave_to_hedge("answered")
                return
            self._begins(attempt, seen.status, complete)
        exchange.answer(head, body, complete)

    def broken(self, why: str, *, stale: bool) -> None:
        exchange = self._exchange
        assert exchange is not None
        exchange.broken(why, stale=stale)

    # --- the second try

    def _begin_hedge(self) -> None:
        self._timer = None
        job, first, now = self.job, self._current(), self.job.context.clock.now()
        context, delivered, requirements = job.context, job.delivered, job.requirements
        assert requirements is not None
        if not context.budget.has_room(now):
            context.counters.retries_refused["hedge"] += 1
            return
        found = job.find_route((*self._state.failed, first.route.chosen.replica))
        theirs, job.delivered = job.delivered, delivered
        if found is None:
            return
        route, chosen = found[0], found[0].chosen
        if chosen.state is not ReplicaState.READY or chosen.model != first.route.chosen.model:
            return
        attempt = Attempt(route, context.upstreams[chosen.backend], job.began, found[1])
        hedge = Hedge(self, attempt, theirs)
        if (queue := context.queues.get(chosen.backend)) is not None:
            attempt.slot = slot = QueueSlot(hedge, queue, job.request_id, chosen.replica, job.priority)
            slot.take()
            if not slot.is_granted:
                attempt.release()
                return
        context.budget.take(now)
        context.routed(job.request_id, requirements, route)
        self._hedge = hedge
        self._send_hedge(hedge, reuse=True)

    def _send_hedge(self, hedge: Hedge, *, reuse: bool) -> None:
        job, attempt = self.job, hedge.attempt
        if job.trace is not None:
            job.trace.attempt = len(self.attempts) + 1
        attempt.send(hedge, job.request(attempt.upstream, attempt.body), reuse=reuse)

    def hedge_answered(self, hedge: Hedge, head: AnswerHead | None, body: bytes, complete: bool) -> None:
        if hedge is not self._hedge:  # it is the only try now
            self.answer(head, body, complete)
            return
        attempt = hedge.attempt
        attempt.head = seen = head or attempt.head
        if complete:
            attempt.connection = None
        if not (body or complete):
            return
        assert seen is not None
        if seen.status != 200 or not seen.stream:
            self._judge(attempt)
            self._drop_hedge("answered", "failed")
            return
        exchange, first = self._exchange, self._current()
        assert exchange is not None
        self._observe(first)
        self._leave_to_hedge(_OVERTAKEN)
        self._begins(attempt, seen.status, complete)
        exchange.answer(seen, body, complete)

    def hedge_broke(self, hedge: Hedge, why: str, stale: bool) -> None:
        if hedge is not self._hedge:
            self.broken(why, stale=stale)
        elif stale:
            self._send_hedge(hedge, reuse=False)
        else:
            error = hedge.attempt.broken(why)
            self.job.context.fleet.failed(hedge.attempt.upstream.name, error.message)
            self._drop_hedge(error.code, "failed")

    # --- inside

    def _leave_to_hedge(self, outcome: str) -> bool:
        """End the current attempt with ``outcome`` if there is a hedge, which takes its place."""
        hedge = self._take_hedge("won")
        if hedge is None:
            return False
        left = self._current()
        if outcome != _OVERTAKEN:
            self._state = self._state._replace(failed=(*self._state.failed, left.route.chosen.replica))
        self.attempts.append(left.record(outcome))
        left.cancel()
        left.release()
        self.attempt = hedge.attempt
        self.job.delivered = hedge.delivered
        return True

    def _begins(self, attempt: Attempt, status: int, complete: bool) -> None:
        """Decide for ``attempt``, whose answer begins. The connection hands the rest to the exchange directly."""
        self._stop_timer()
        self._drop_hedge(_OVERTAKEN, "lost")
        if status == 200:
            self._observe(attempt)
        if not complete and attempt.connection is not None and self._exchange is not None:
            attempt.connection.redirect(self._exchange)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop_hedge(self, outcome: str, result: str) -> None:
        hedge = self._take_hedge(result)
        if hedge is None:
            return
        if result == "failed":
            self._state = self._state._replace(failed=(*self._state.failed, hedge.attempt.route.chosen.replica))
        self.attempts.append(hedge.attempt.record(outcome))
        hedge.attempt.cancel()
        hedge.attempt.release()

    def _take_hedge(self, result: str) -> Hedge | None:
        hedge, self._hedge = self._hedge, None
        if hedge is not None:
            self.job.context.counters.hedges[hedge.attempt.upstream.name, result] += 1
        return hedge

    def _judge(self, attempt: Attempt) -> None:
        assert attempt.head is not None
        self.job.judge(attempt.route, attempt.head.status, self.job.context.clock.now() - attempt.sent_at, ())

    def _observe(self, attempt: Attempt) -> None:
        delay = self.job.context.hedging
        if delay is not None and attempt.sent_at:
            delay.observe(attempt.route.chosen.model, self.job.context.clock.now() - attempt.sent_at)
