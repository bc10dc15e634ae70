"""Refuses requests that would wait too long, as soon as that is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from enginehouse.domain.errors import DeadlineMissed, RequestError, Shed
from enginehouse.domain.ticket import Ticket
from enginehouse.scheduling.open_tickets import Backlog


class Refusal(NamedTuple):
    """A request that is refused, and why."""

    ticket: Ticket
    error: RequestError


def expected_wait(backlogs: Collection[Backlog], requests: int) -> float:
    """The seconds in which so many ``requests`` are granted by the hosts of ``backlogs``; 0 while that is unknown."""
    rate = sum(each.rate for each in backlogs)
    return requests / rate if rate else 0.0


def unfit(
    ticket: Ticket, waiting: Sequence[Ticket], backlogs: Collection[Backlog], shed_after: float, now: float
) -> Refusal | None:
    """The request to refuse because ``ticket`` came to wait; ``None`` if all may wait.

    ``waiting``: with it, in the order of service. That is ``ticket`` itself if it cannot make its deadline. If the last
    one would wait for more than ``shed_after`` seconds, it is the newest of those with the lowest priority.
    """
    wait = expected_wait(backlogs, waiting.index(ticket) + 1)
    if now + wait > ticket.deadline:
        return Refusal(ticket, DeadlineMissed(wait))
    longest = expected_wait(backlogs, len(waiting))
    if 0 < shed_after < longest:
        lowest = min(each.priority for each in waiting)
        last = [each for each in waiting if each.priority == lowest][-1]
        return Refusal(last, Shed(longest, retry_after=max(1, math.ceil(longest - shed_after))))
    return None


def missed(
    tickets: Collection[Ticket], now: float, seconds_left: Callable[[str], float] = lambda _: 0.0
) -> Sequence[Refusal]:
    """The refusals of ``tickets`` whose deadline has passed, or will before their replica is ready.

    ``seconds_left`` returns the seconds until then, as far as they are known.
    """
    hurried = [(each, now + seconds_left(each.replica)) for each in tickets if each.deadline < math.inf]
    return [Refusal(each, DeadlineMissed(end - each.arrived)) for each, end in hurried if each.deadline <= end]
