"""Limit stores: keep what callers have used of their limits, for one gateway or for several together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from enginehouse.callers import LimitRule, TakenLimit

__all__ = ["Limit", "LimitStore"]


class Limit(ABC):
    """What is left of one limit. No method waits: requests are admitted between two turns of the event loop."""

    __slots__ = ()

    @abstractmethod
    def seconds_short(self, amount: float) -> float:
        """Return the seconds until ``amount`` can probably be taken; 0 if it can be now.

        An amount above the whole limit counts as the whole limit.
        """

    @abstractmethod
    def take(self, amount: float) -> None:
        """Take ``amount``, even if it is not there, since answers may be long. A negative one comes back."""

    @abstractmethod
    def left(self) -> float:
        """Return what is left, which may be negative."""

    @abstractmethod
    def full_in(self) -> float:
        """Return the seconds until all of it is there again, if nothing more is taken; 0 for a limit ``at_once``."""


class LimitStore(ABC):
    """Keeps limits by name. Chosen by ``limits.store``.

    The gateway asks for each limit once and keeps the ``Limit``. A store that several gateways share decides without
    waiting too: ``LeasedLimitStore`` takes leases in the background.
    """

    remembers: ClassVar[bool] = False
    """Whether what was taken of limits of a day or a month is still known after a restart of the gateway."""

    def prepare(self, url: str, now: Callable[[], float], epoch: Callable[[], float]) -> None:
        """Take ``limits.url``, which may be empty, before any other call. ``now`` and ``epoch`` tell the seconds.

        ``now`` counts from any moment and is never set back, ``epoch`` from 1970. Raise ``ConfigError`` for an address
        that cannot be used. Connect in ``open``.
        """

    @abstractmethod
    def limit(self, name: str, rule: LimitRule) -> Limit:
        """Return the limit called ``name``. If there is one already, it gets ``rule``, and what is taken stays taken.

        A name is used with one ``per`` only.
        """

    def passing_limit(self, name: str, rule: LimitRule) -> Limit:
        """As ``limit``, for a name that clients choose, such as an end user's: there is no end of them.

        The gateway asks again for each request. A store keeps a bounded number of such limits: it may drop one that
        nobody has used for long, which is then whole again. By default, all are kept.
        """
        return self.limit(name, rule)

    def take(self, wanted: Sequence[tuple[Limit, float]]) -> tuple[int, float] | None:
        """Take all amounts in one step if each can be taken now, else nothing.

        Returns ``None`` if they are taken, or the place of the first one that cannot be, and the seconds until it
        probably can. A store whose limits other processes change at the same time has its own.
        """
        for place, (limit, amount) in enumerate(wanted):
            wait = limit.seconds_short(amount)
            if wait > 0:
                return place, wait
        for limit, amount in wanted:
            limit.take(amount)
        return None

    async def open(self) -> None:
        """Begin work in the background. A store that cannot be reached is not an error: limits hold without it."""

    async def close(self) -> None:
        """End it."""

    def taken(self) -> Mapping[str, TakenLimit]:
        """Return what is taken of which limits, for the gateway that takes over; of limits ``at_once`` nothing is.

        A store that outlives its gateway returns nothing.
        """
        return {}

    def recall(self, taken: Mapping[str, TakenLimit]) -> None:
        """Count what the gateway before this one had ``taken``, where less is taken. Limits keep their rules."""

    def problem(self) -> str:
        """Return why limits are not shared with other gateways now; empty if they are, or need not be."""
        return ""
