"""A request that waits for its model, before it has a replica."""

from __future__ import annotations

from typing import NamedTuple

from enginehouse.domain.replica import Route
from enginehouse.domain.ticket import Ticket
from enginehouse.relay.jobs.job import Job


class WaitingPlace(NamedTuple):
    """A place in the waiting room for a job whose ``route`` waits.

    ``since``: when the request began to wait, in seconds of the gateway's clock; its ticket has the queues' clock.
    """

    route: Route
    ticket: Ticket
    since: float

    @classmethod
    def of(cls, job: Job, route: Route, arrived: float | None) -> WaitingPlace:
        """The place of ``job``, which has waited since ``arrived`` on the queues' clock; by default since now."""
        context = job.context
        arrived = context.waiting_room.now() if arrived is None else arrived
        return cls(route, job.ticket(route.chosen.model, arrived), context.clock.now())

    def replicas(self, job: Job) -> list[str]:
        """The replicas that may serve the job in the end."""
        return [each.replica for each in job.context.fleet.snapshot.candidates(self.ticket.replica)]
