"""Flow control: how fast requests are granted, and which are refused instead of waiting."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from enginehouse.domain.errors import DeadlineMissed, RequestError, Shed
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.ticket import Ticket
from enginehouse.interfaces.schedulers import CallerTurn, CallerTurns
from enginehouse.telemetry.plugin_failures import plugin_errors, wrong_result

_REMEMBERED: Final = 32
_LONGEST_S: Final = 600


class Backlog:
    """Counts what waits in all queues that share it, and measures the time from one grant to the next."""

    def __init__(self) -> None:
        self.waiting = 0
        self._grants = 0
        self._pace_s = 0.0
        self._last: float | None = None

    @property
    def rate(self) -> float:
        """Grants in a second while requests wait; 0 while that is unknown."""
        return 1 / self._pace_s if self._pace_s else 0.0

    def add(self) -> None:
        """Count a request in."""
        if not self.waiting:  # how long nothing was asked for says nothing of the pace
            self._last = None
        self.waiting += 1

    def take(self) -> None:
        """Count a request out."""
        self.waiting -= 1

    def moved(self, requests: int, to: Backlog) -> Backlog:
        """Count so many ``requests`` out here and in there, because their queue belongs to another host now."""
        for _ in range(requests):
            self.take()
            to.add()
        return to

    def granted(self, now: float) -> None:
        """Note that a request was granted at ``now`` while others wait: only then it shows how fast the host is."""
        if self._last is not None:
            self._grants = min(self._grants + 1, _REMEMBERED)
            self._pace_s += (now - self._last - self._pace_s) / self._grants
        self._last = now

    def retry_after(self) -> int:
        """The seconds after which everything that waits now will probably be served; 1 while that is unknown."""
        return max(1, min(math.ceil(self.waiting * self._pace_s), _LONGEST_S))


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


def next_turn(
    turns: tuple[PluginId, CallerTurns], caller: str | None, weight: float, prompt: int, answer_limit: int | None
) -> CallerTurn:
    """As ``CallerTurns.next`` of a plugin. Raises ``PluginFailed``."""
    plugin, inner = turns
    with plugin_errors(plugin):
        turn = inner.next(caller, weight, prompt, answer_limit)
        if not (isinstance(turn, CallerTurn) and isinstance(turn.at, (int, float)) and turn.at == turn.at):
            raise wrong_result(plugin, "returned no CallerTurn with a number from CallerTurns.next")
    return turn
