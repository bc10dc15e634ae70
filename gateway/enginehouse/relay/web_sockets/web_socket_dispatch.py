"""Takes a WebSocket's handshake to an engine, and to another one if the first fails it."""

from __future__ import annotations

from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection

from enginehouse.domain.errors import Overloaded, RequestError
from enginehouse.domain.ticket import Phase
from enginehouse.interfaces.drivers import EngineResponse
from enginehouse.relay.jobs.engine_job import EngineJob
from enginehouse.relay.retrying.retries import Otherwise, Outcome, RetryDecision, RetryState, SendAgain, decide
from enginehouse.relay.web_sockets.web_socket_attempt import WebSocketAttempt
from enginehouse.telemetry.record import AttemptRecord


class WebSocketDispatch:
    """Routes a handshake, waits for a queue slot where the gateway launches the engine, sends it, and retries it.

    ``largest``: the size limit in bytes of a message from the engine. ``attempt``: the current one. ``attempts``: those
    that have ended, in order.
    """

    def __init__(self, job: EngineJob, largest: int) -> None:
        self._job = job
        self._largest = largest
        self._state = RetryState()
        self.attempt: WebSocketAttempt | None = None
        self.attempts: list[AttemptRecord] = []

    @property
    def phase(self) -> Phase:
        """The handshake's phase on its way to an engine."""
        if self.attempt is None:
            return Phase.ROUTING
        return Phase.QUEUED if self.attempt.slot is not None and not self.attempt.sent else Phase.SERVING

    async def open(self, subprotocols: Sequence[str]) -> ClientConnection | EngineResponse:
        """An engine's WebSocket, or its answer to the handshake. Raises ``RequestError`` if no engine answers."""
        job, context = self._job, self._job.context
        requirements, waiting_since = job.requirements, None
        assert requirements is not None
        route = job.route(())
        context.budget.count(job.began)
        while True:
            if job.trace is not None:
                job.trace.attempt = len(self.attempts)
            self.attempt = attempt = WebSocketAttempt(job, route)
            context.routed(job.request_id, requirements, route)
            try:
                answer = await attempt.open(subprotocols, self._largest, waiting_since)
            except RequestError as error:
                decision = await self._decide(attempt, error)
                if not isinstance(decision, SendAgain):
                    raise
                self.attempts.append(attempt.record(error.code))
            else:
                context.fleet.succeeded(route.chosen.backend)
                return answer
            waiting_since = attempt.waiting_since
            if attempt.sent:
                context.budget.take(self._job.context.clock.now())
            attempt.release()
            if decision.state.retries > self._state.retries:
                context.retried(route.chosen.backend)
            self._state, route = decision.state, decision.route

    def end(self, outcome: str) -> None:
        """End the current attempt with ``outcome``, and release what it holds."""
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            self.attempts.append(attempt.record(outcome))
            attempt.release()

    async def _decide(self, attempt: WebSocketAttempt, error: RequestError) -> RetryDecision:
        if not attempt.sent:
            joined_load = attempt.slot is not None and attempt.slot.joined_load
            return self._decision(attempt, Outcome.of_queue(error, joined_load))
        if isinstance(error, Overloaded):  # a shortage of the gateway itself
            return Otherwise.FAIL
        decision = self._decision(attempt, Outcome.of_engine(error))
        if decision is Otherwise.FIND_OUT:
            assert attempt.slot is not None
            exited = await attempt.slot.engine_exited()
            decision = self._decision(attempt, Outcome.EXITED) if exited else Otherwise.FAIL
            if isinstance(decision, SendAgain):
                return decision
        self._job.context.fleet.failed(attempt.route.chosen.backend, error.message)
        return decision

    def _decision(self, attempt: WebSocketAttempt, outcome: Outcome) -> RetryDecision:
        job = self._job
        in_budget = job.context.budget.has_room(self._job.context.clock.now())
        failed, most = attempt.failed(outcome), job.context.max_retries
        decision = decide(failed, self._state, most, job.find_route, in_budget=in_budget)
        if decision is Otherwise.SPENT:
            job.context.counters.retries_refused["retry"] += 1
        return decision
