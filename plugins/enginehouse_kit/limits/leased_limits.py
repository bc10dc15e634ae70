"""The base of limit stores that several gateways share: each takes leases, so that no request waits for the store."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from traceback import format_exception_only
from typing import ClassVar, NamedTuple
from uuid import uuid4

from enginehouse.callers import LimitRule
from enginehouse.runtime import run_within, wait_within
from enginehouse_kit.limit_stores import Limit, LimitStore
from enginehouse_kit.limits.local_limit import LocalLimit, PassingLimits

_log = logging.getLogger(__name__)

_SHORTEST_GAP_S = 0.002
"""Between two exchanges with the store, however many requests come."""
_KNOWN_S = 1.0
"""For so long after an exchange, a gateway believes what the store said of a limit."""
_SEEN_EVERY_S = 1.0
_LEAST = 1e-6


class LeaseAsk(NamedTuple):
    """What a gateway asks of one limit."""

    name: str
    rule: LimitRule
    want: float
    """More of it, for the next moment; what it took without a lease is in it. Of a limit ``at_once``: all that it
    holds and wants to hold."""
    back: float = 0.0
    """What it gives back of earlier leases. Always 0 for a limit ``at_once``: it then holds what it is granted."""


class Lease(NamedTuple):
    """The answer to one ask."""

    granted: float
    """At most ``want``."""
    wait: float = 0.0
    """The seconds until there may be more, if less than wanted was granted."""
    left: float = 0.0
    """What is left for all gateways after this lease."""


class Leases(NamedTuple):
    """The answers to all asks, in their order."""

    leases: Sequence[Lease]
    gateways: int = 1
    """How many gateways have asked lately, this one among them: the share of each if the store is lost."""


class LeasedLimit(Limit):
    """One gateway's part of a shared limit.

    It is sure of what it has leased. Beyond that it takes on credit: at most half of its share of what the store said
    is left, and one request in any case if there is any. After a second without an exchange, it believes that all of
    the limit is left. Debts are paid from later leases, so what all gateways take is right in the long run.
    """

    def __init__(self, store: LeasedLimitStore, name: str, rule: LimitRule) -> None:
        self.name = name
        self.rule = rule
        self._share: LocalLimit | None = None
        """What this gateway may use by itself while the store is lost. It is kept: a store that is lost again and again
        does not grant it again."""
        self._is_alone = False
        self._store = store
        self._stock = 0.0  # of a limit at_once: all that it holds, in use or not
        self._used = 0.0  # of a limit at_once: in use
        self._demand = 0.0
        self._target = 0.0
        self._known_until = -1.0
        self._more_at = 0.0
        self._elsewhere = 0.0

    def seconds_short(self, amount: float) -> float:
        amount = min(amount, self.rule.amount)
        self._demand += amount
        self._store.active[self.name] = self
        if self._stock - self._used >= amount - _LEAST:
            return 0.0
        now, elsewhere = self._store.now(), self._believed()
        if elsewhere > 0 or now >= self._more_at:
            self._store.wake()
        if self._has_credit(amount, elsewhere):
            return 0.0
        return max(self._store.interval, self._more_at - now)

    def _believed(self) -> float:
        """What is left for all gateways, besides this one's lease."""
        return self._elsewhere if self._store.now() <= self._known_until else self.rule.amount

    def _has_credit(self, amount: float, elsewhere: float) -> bool:
        share = elsewhere if self._is_alone else elsewhere / self._store.gateways
        if self.rule.per == "at_once":
            return self._used + amount - self._stock <= max(share, min(1.0, elsewhere))
        return -self._stock < share / 2

    @property
    def in_use(self) -> bool:
        """Whether requests that run now have taken some of a limit ``at_once``."""
        return self.rule.per == "at_once" and self._used > 0

    def take(self, amount: float) -> None:
        self._store.active[self.name] = self
        if self.rule.per == "at_once":
            self._used += amount
            self._demand = max(0.0, self._demand - amount)  # what is left of it was refused
        else:
            self._stock -= amount

    def left(self) -> float:
        return min(self.rule.amount, self._believed() + self._stock) - self._used

    def full_in(self) -> float:
        missing = self.rule.amount - self.left()
        return max(0.0, missing * 60 / self.rule.amount) if self.rule.per == "minute" else 0.0

    # --- what the store asks and is told

    @property
    def is_idle(self) -> bool:
        """Whether it holds nothing, and will ask for nothing before it is used again."""
        return not self._target and not self._used and abs(self._stock) <= _LEAST

    def ask(self) -> LeaseAsk | None:
        """What to ask for now; ``None`` for nothing."""
        demand, self._demand = self._demand, 0.0
        if self.rule.per == "at_once":
            return self._ask_at_once(demand)
        self._target = min(self.rule.amount, max(2 * demand, self._target / 2))
        if self._target < self.rule.amount * 1e-3 and not demand:
            self._target = 0.0
        surplus = self._stock - self._target
        if surplus > _LEAST:
            self._stock = self._target
            return LeaseAsk(self.name, self.rule, 0.0, surplus)
        return LeaseAsk(self.name, self.rule, -surplus) if surplus < -_LEAST else None

    def _ask_at_once(self, demand: float) -> LeaseAsk | None:
        wanted = min(self.rule.amount, self._used + demand)
        if not wanted and not self._stock:
            return None
        return LeaseAsk(self.name, self.rule, wanted)

    def last_ask(self) -> LeaseAsk | None:
        """What goes back at the end."""
        if self.rule.per == "at_once":
            return LeaseAsk(self.name, self.rule, 0.0) if self._stock else None
        return LeaseAsk(self.name, self.rule, 0.0, self._stock) if self._stock else None

    def grant(self, lease: Lease) -> None:
        """Take what the store granted to the last ask."""
        self._is_alone = False
        now = self._store.now()
        self._known_until = now + max(_KNOWN_S, lease.wait)
        self._more_at = now + lease.wait
        self._elsewhere = lease.left
        self._stock = lease.granted if self.rule.per == "at_once" else self._stock + lease.granted

    def grant_alone(self, ask: LeaseAsk) -> None:
        """Answer an ask without the store: from this gateway's share."""
        share = LimitRule(max(1.0, self.rule.amount / self._store.gateways), self.rule.per)
        if self._share is None:
            self._share = self._store.local(share)
        self._share.set_rule(share)
        if self.rule.per == "at_once":
            granted = max(self._used, min(ask.want, share.amount))
            self.grant(Lease(granted, left=max(0.0, share.amount - granted)))
        else:
            self.grant(lease_of(self._share, ask))
        self._is_alone = True


def lease_of(limit: LocalLimit, ask: LeaseAsk) -> Lease:
    """Take what ``ask`` wants of ``limit`` as far as it is there, after what it gives back."""
    limit.take(-ask.back)
    granted = max(0.0, min(ask.want, limit.left()))
    limit.take(granted)
    wait = limit.seconds_short(ask.want - granted) if granted < ask.want else 0.0
    return Lease(granted, wait, max(0.0, limit.left()))


class LeasedLimitStore(LimitStore):
    """A limit store that gateways reach over a network, or in another process. Subclasses have ``lease``.

    Every ``interval`` seconds, and as soon as a request finds too little, the limits in use ask for leases, all in one
    call. While a call fails, or takes longer than ``patience``, each gateway lives on its share: the limit divided by
    the number of gateways that the store knew last.
    """

    remembers: ClassVar[bool] = True
    interval: ClassVar[float] = 0.1
    patience: ClassVar[float] = 0.25

    def __init__(self) -> None:
        self.gateways = 1
        self.gateway = uuid4().hex
        self.active: dict[str, LeasedLimit] = {}
        """Those that may have something to ask for."""
        self._limits: dict[str, LeasedLimit] = {}
        self._passing: PassingLimits[LeasedLimit] = PassingLimits()
        self._backs: list[LeaseAsk] = []
        self._wanted: asyncio.Event | None = None
        self._task: asyncio.Task[None] | None = None
        self._problem = ""
        self._asked_at = -inf

    def prepare(self, url: str, now: Callable[[], float], epoch: Callable[[], float]) -> None:
        self.now = now
        self.epoch = epoch

    @abstractmethod
    async def lease(self, gateway: str, asks: Sequence[LeaseAsk]) -> Leases:
        """Return the leases of ``gateway``; ``asks`` may be empty. Raise any exception if the store cannot be reached.

        What a gateway holds of limits ``at_once`` is free again when it has not asked for some seconds. ``LeaseBook``
        says in Python what a store does.
        """

    def limit(self, name: str, rule: LimitRule) -> Limit:
        known = self._limits.get(name)
        if known is None:
            known = self._limits[name] = LeasedLimit(self, name, rule)
        known.rule = rule
        return known

    def passing_limit(self, name: str, rule: LimitRule) -> Limit:
        known = self._passing.get(name)
        if known is None:
            known = LeasedLimit(self, name, rule)
            dropped = self._passing.add(name, known)
            if dropped is not None:
                self.active.pop(dropped.name, None)
                back = dropped.last_ask()
                self._backs += [] if back is None else [back]
        known.rule = rule
        return known

    def local(self, rule: LimitRule) -> LocalLimit:
        """A limit that this process counts alone, by the store's clocks."""
        return LocalLimit(rule, self.now, self.epoch)

    def problem(self) -> str:
        return self._problem

    def wake(self) -> None:
        """Ask for leases soon."""
        if self._wanted is not None:
            self._wanted.set()

    async def open(self) -> None:
        self._wanted = asyncio.Event()
        self._task = asyncio.create_task(self._renew(self._wanted))

    async def close(self) -> None:
        """End the leases: all that is left goes back, if the store can be reached."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        backs = [*self._backs, *(ask for limit in self.active.values() if (ask := limit.last_ask()) is not None)]
        if backs and not self._problem:
            with suppress(Exception):  # of any library; what is not given back comes back with time
                await run_within(self.patience, self.lease(self.gateway, backs))

    async def _renew(self, wanted: asyncio.Event) -> None:
        while True:
            wanted.clear()
            await self.exchange()
            await asyncio.sleep(_SHORTEST_GAP_S)
            await wait_within(self.interval, wanted)

    async def exchange(self) -> None:
        """Ask once for all active limits. Now and then, ask without any: to be seen, and to know the others."""
        asking, backs = self._asking(), self._backs
        if not backs and not asking and not self._problem and self.now() < self._asked_at + _SEEN_EVERY_S:
            return
        self._asked_at = self.now()
        self._backs = []
        if self._problem:  # no limit waits for a store that is lost
            for limit, ask in asking:
                limit.grant_alone(ask)
            asking = []
        try:
            asks = [*(ask for _, ask in asking), *backs]
            answer = await run_within(self.patience, self.lease(self.gateway, asks))
        except Exception as error:
            self._lost(format_exception_only(error)[-1].strip())
            for limit, ask in asking:
                limit.grant_alone(ask)
            return
        self._found(answer.gateways)
        for (limit, _), lease in zip(asking, answer.leases, strict=False):  # what comes back has no limit any more
            limit.grant(lease)

    def _asking(self) -> list[tuple[LeasedLimit, LeaseAsk]]:
        """The active limits that have something to ask for. Those that have nothing more end to be active."""
        asking = []
        for name, limit in list(self.active.items()):
            ask = limit.ask()
            if ask is not None:
                asking.append((limit, ask))
            elif limit.is_idle:
                del self.active[name]
        return asking

    def _lost(self, why: str) -> None:
        if not self._problem:
            _log.warning("The limit store is lost, so each of %d gateways keeps to its share: %s", self.gateways, why)
        self._problem = why

    def _found(self, gateways: int) -> None:
        if self._problem:
            _log.warning("The limit store is back, and limits are shared again")
        self._problem = ""
        self.gateways = max(1, gateways)
