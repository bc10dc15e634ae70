"""A job on its way to an engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from enginehouse.domain.errors import QueueFull, RequestError
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Phase
from enginehouse.relay.attempts.attempt import NEVER, Attempt, client_error
from enginehouse.relay.attempts.waiting_place import WaitingPlace
from enginehouse.relay.jobs.job import Job
from enginehouse.relay.queue_slot import QueueSlot
from enginehouse.relay.retrying.retries import RetryState
from enginehouse.telemetry.log_context import log_context
from enginehouse.telemetry.request_facts import AttemptFacts

_UNTRIED: Final = RetryState()


class AttemptSender(Protocol):
    """An exchange or a WebSocket, as its dispatch sees it."""

    def send_attempt(self, attempt: Attempt, reuse: bool) -> None:
        """Send the dispatch's job to the engine of ``attempt``; ``reuse``: a kept connection will do."""

    def fail(self, error: RequestError) -> None:
        """Answer with ``error``: the job is sent no more."""


class RoutedJob(ABC):
    """Routes a job, waits for a slot where there are limits, and has ``sender`` send it.

    ``attempt``: the current one. ``attempts``: those that have ended, in order. ``job``: the rest to be served.
    ``place``: in the waiting room, set while it waits for its model, and so has no attempt.
    """

    def __init__(self, job: Job, sender: AttemptSender) -> None:
        self.job = job
        self._sender: AttemptSender | None = sender
        self._state = _UNTRIED
        self.attempt: Attempt | None = None
        self.attempts: list[AttemptFacts] = []
        self.place: WaitingPlace | None = None

    @property
    def retries(self) -> int:
        """How often the job was sent again."""
        return self._state.retries

    @property
    def sent(self) -> int:
        """How many attempts have reached an engine, or may have."""
        current = self.attempt is not None and self.attempt.sent_at > 0
        return sum([each.sent > 0 for each in self.attempts]) + current

    @property
    def failed(self) -> tuple[str, ...]:
        """The replicas that failed the job."""
        return self._state.failed

    @property
    def phase(self) -> Phase:
        """The job's phase on its way to an engine."""
        if self.attempt is None:
            return Phase.ROUTING if self.place is None else Phase.QUEUED
        slot = self.attempt.slot
        return Phase.SERVING if slot is None or slot.is_granted else Phase.QUEUED

    def current(self) -> Attempt:
        """The current attempt, of which there is one."""
        assert self.attempt is not None
        return self.attempt

    def start(self) -> None:
        """Send the job for the first time. Raises ``RequestError`` if it cannot be sent anywhere."""
        job = self.job
        route = job.route(())
        job.context.router.count_turn(route)
        job.context.budget.count(job.began)
        if route.waits:
            self._wait(route, None)
        else:
            self._begin(route, job.body_for(route), None)

    def replace(self, attempt: Attempt, outcome: str, why: str = "") -> None:
        """Continue with ``attempt``. The current one ends with ``outcome``; ``why``: the message of its error."""
        self.leave(outcome, why)
        self.attempt = attempt

    def end_attempt(self, attempt: Attempt, outcome: str, why: str = "") -> None:
        """End ``attempt``, the current one or a rival of it, with ``outcome``; ``why``: the message of its error."""
        self.attempts.append(attempt.facts(outcome, why))
        attempt.cancel()
        attempt.release()

    def cancel(self) -> None:
        """Abort the current attempt, without another call of ``sender``."""
        if self.attempt is not None:
            self.attempt.cancel()

    def end(self, outcome: str, why: str = "") -> None:
        """End the current attempt, if there is one. Nothing may follow."""
        self._sender = None  # otherwise the cycle of the two waits for the garbage collector
        self.leave(outcome, why)

    def leave(self, outcome: str, why: str = "") -> None:
        """Leave the waiting room, or end the current attempt. A request that waits owns no attempt."""
        place, self.place = self.place, None
        if place is not None:
            self.job.context.waiting_room.leave(place.ticket)
        attempt, self.attempt = self.attempt, None
        if attempt is not None:
            self.end_attempt(attempt, outcome, why)

    # --- from the waiting room

    def look(self) -> Route | None:
        job, place = self.job, self.place
        if place is None:
            return None
        try:
            return job.reroute(place.route, self.failed)
        except Exception as error:
            with log_context.named(job.request_id, job.trace_id):
                raise client_error(error) from None

    def bind(self, route: Route) -> None:
        self._unwait(partial(self._bound, route))

    def start_over(self) -> None:
        self._unwait(self._start_over)

    def refuse(self, error: RequestError) -> None:
        self._unwait(lambda _: self._fail(error))

    def _unwait(self, step: Callable[[WaitingPlace], None]) -> None:
        """Take ``step``, which the place in the waiting room was kept for."""
        place, self.place = self.place, None
        if place is not None:
            self._act(partial(step, place))

    def _act(self, step: Callable[[], None]) -> None:
        """Take ``step`` in the name of this request, which fails if it raises: it runs at an event of another one."""
        job = self.job
        with log_context.named(job.request_id, job.trace_id):
            try:
                step()
            except Exception as error:
                self._fail(client_error(error))

    def _bound(self, route: Route, place: WaitingPlace) -> None:
        self._begin(route, self.job.body_for(route), place.ticket.arrived, place.since)

    def _start_over(self, place: WaitingPlace) -> None:
        """Find another route, for the model is lost."""
        route = self.job.route(self.failed)
        self._follow(route, b"" if route.waits else self.job.body_for(route), place.ticket.arrived, place.since)

    # --- from the queue

    def granted(self) -> None:
        self._act(self._granted)

    def _granted(self) -> None:
        self.current().granted()
        shares = self.job.context.shares
        if shares is not None:
            shares.granted(self.job.turn)
        self._send()

    def rejected(self, error: RequestError) -> None:
        self._act(partial(self._rejected, error))

    @abstractmethod
    def _rejected(self, error: RequestError) -> None:
        """Retry the job, for which the queue has no slot, or fail it."""

    # --- inside

    def _fail(self, error: RequestError) -> None:
        assert self._sender is not None
        self._sender.fail(error)

    def _follow(self, route: Route, body: bytes, waiting_since: float | None, routed_at: float | None = None) -> None:
        """Begin an attempt along ``route``, or wait for its model. Raises ``QueueFull``."""
        if route.waits:
            self._wait(route, waiting_since)
        else:
            self._begin(route, body, waiting_since, routed_at)

    def _wait(self, route: Route, arrived: float | None) -> None:
        """Wait for the model of ``route``; or go to another one, if too many wait for it. Raises ``QueueFull``."""
        job = self.job
        self.place = place = WaitingPlace.of(job, route, arrived)
        try:
            job.context.waiting_room.join(place.ticket, self, place.backlogs(job))  # which may bind it at once
        except QueueFull:
            self.place = None
            found = job.find_route((*self.failed, *place.replicas(job)))
            if found is None or found[0].waits:
                raise
            self._begin(*found, arrived)

    def _begin(self, route: Route, body: bytes, waiting_since: float | None, routed_at: float | None = None) -> None:
        job, chosen = self.job, route.chosen
        context, requirements = job.context, job.requirements
        assert requirements is not None
        if job.trace is not None:
            job.trace.attempt = len(self.attempts)
        upstream, queue = context.upstreams[chosen.backend], context.queue_of(chosen)
        context.router.carry_out(requirements, route)
        # In a queue, the time for all of the answer does not run yet: ``granted`` starts it.
        self.attempt = attempt = Attempt(route, upstream, job.began if queue is None else NEVER, body)
        if routed_at is not None:
            attempt.began = routed_at
        context.routed(job.request_id, requirements, route)
        if queue is None:
            self._send()
        else:
            arrived = queue.now() if waiting_since is None else waiting_since
            attempt.slot = slot = QueueSlot(self, queue, job.ticket(chosen.replica, arrived))
            slot.keep_alive = job.keep_alive
            slot.take()

    def _send(self) -> None:
        if self.job.prepares:
            self.current().work(self._prepare, self._prepared)
        else:
            self._send_now()

    async def _prepare(self, attempt: Attempt) -> None:
        attempt.body = await self.job.prepare(attempt.route)

    @abstractmethod
    def _prepared(self, error: RequestError | None) -> None:
        """Send the job, whose body is made now; or retry it, if that failed with ``error``."""

    def _send_now(self) -> None:
        attempt, sender, state = self.attempt, self._sender, self._state
        assert attempt is not None
        assert sender is not None
        again = state is not _UNTRIED and state.asked_twice(attempt.route.chosen.replica)
        sender.send_attempt(attempt, self.job.repeatable and not again)
