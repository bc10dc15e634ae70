"""A request that waits for its model, before it has a replica."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection
from typing import Protocol

from enginehouse.domain.errors import RequestError
from enginehouse.domain.route import Route
from enginehouse.domain.ticket import Ticket
from enginehouse.relay.jobs.job import Job
from enginehouse.scheduling.open_tickets import Backlog
from enginehouse.telemetry.log_context import log_context

_log = logging.getLogger("enginehouse.relay")
_ids = itertools.count(1)


class UnboundHolder(Protocol):
    """The dispatch of a request that waits for its model."""

    job: Job

    @property
    def failed(self) -> tuple[str, ...]:
        """The replicas that failed the job."""

    def bound(self, route: Route) -> None:
        """Send the job along ``route``. Raises ``RequestError`` if it cannot be sent there."""

    def start_over(self) -> None:
        """Find another route, for the model is lost. Raises ``RequestError`` if there is none."""

    def refused(self, error: RequestError) -> None:
        """Answer the request with ``error``."""


class Unbound:
    """A place in the waiting room for the job of ``holder``, whose ``route`` waits.

    ``since``: when the request began to wait, in seconds of the gateway's clock; ``arrived``: the same on the queues'
    clock, by default now.
    """

    __slots__ = ("_holder", "_room", "route", "since", "ticket")

    def __init__(self, holder: UnboundHolder, route: Route, arrived: float | None) -> None:
        job = holder.job
        self._holder: UnboundHolder | None = holder
        self._room = room = job.context.waiting_room
        self.route = route
        self.since = job.context.clock.now()
        arrived = room.now() if arrived is None else arrived
        self.ticket = Ticket(
            id=f"{job.request_id.decode()}/unbound-{next(_ids)}",
            replica=route.chosen.model,
            priority=job.priority,
            arrived=arrived,
            caller=job.key,
            deadline=arrived + job.longest_wait,
            turn=job.turn,
        )

    @property
    def replicas(self) -> list[str]:
        """The replicas that may serve it in the end."""
        candidates = self._job.context.fleet.snapshot.candidates(self.ticket.replica)
        return [each.replica for each in candidates]

    def wait(self) -> None:
        """Join the waiting room; the holder may be ``bound`` before this returns. Raises ``QueueFull``."""
        self._room.join(self.ticket, self, self._backlogs())

    def leave(self) -> None:
        """Leave the waiting room, if it is still there."""
        self._holder = None  # otherwise the cycle of the two waits for the garbage collector
        self._room.leave(self.ticket)

    # --- from the waiting room

    def look(self) -> Route | None:
        holder = self._holder
        return None if holder is None else holder.job.reroute(self.route, holder.failed)

    def bind(self, route: Route) -> None:
        self._act(lambda holder: holder.bound(route))

    def start_over(self) -> None:
        self._act(lambda holder: holder.start_over())

    def refuse(self, error: RequestError) -> None:
        self._act(lambda holder: holder.refused(error))

    # --- inside

    @property
    def _job(self) -> Job:
        assert self._holder is not None
        return self._holder.job

    def _backlogs(self) -> Collection[Backlog]:
        context, model = self._job.context, self.ticket.replica
        queues = (context.queues.get(each.backend) for each in context.fleet.snapshot.candidates(model))
        return {queue.backlog: None for queue in queues if queue is not None}.keys()

    def _act(self, step: Callable[[UnboundHolder], None]) -> None:
        """Take ``step``, in the name of this request: it runs at an event of another one."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        with log_context.named(holder.job.request_id, holder.job.trace_id):
            try:
                step(holder)
            except RequestError as error:
                holder.refused(error.with_traceback(None))
            except Exception:
                _log.exception("a request met a defect of the gateway")
                holder.refused(RequestError("Internal error; see the gateway's log"))
