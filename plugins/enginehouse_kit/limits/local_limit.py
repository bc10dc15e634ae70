"""A limit that one process counts by itself."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Generic, Protocol, TypeVar

from enginehouse.callers import LimitPeriod, LimitRule, TakenLimit
from enginehouse_kit.limit_stores import Limit, LimitStore

_log = logging.getLogger(__name__)

MINUTE_S = 60.0
MOST_PASSING = 10_000
"""The most limits of names that clients choose, which a process keeps."""
_DAY_S = 86400.0
_LOOKED_AT = 8


class PassingLimit(Protocol):
    """A limit that may be dropped."""

    @property
    def in_use(self) -> bool:
        """Whether requests that run now have taken some of a limit ``at_once``."""


_Kept = TypeVar("_Kept", bound=PassingLimit)


class CountedLimit(Limit):
    """A limit whose rest is known. ``rule``: its own."""

    __slots__ = ("rule",)

    rule: LimitRule

    @property
    def in_use(self) -> bool:
        """Whether requests that run now have taken some of a limit ``at_once``."""
        return self.rule.per == "at_once" and self.left() < self.rule.amount

    @abstractmethod
    def ends_in(self) -> float:
        """Return the seconds until the day or the month of the rule ends, as ``left`` has found it."""

    def seconds_short(self, amount: float) -> float:
        missing = min(amount, self.rule.amount) - self.left()
        if missing <= 0:
            return 0.0
        if self.rule.per == "minute":
            return missing * MINUTE_S / self.rule.amount
        return 1.0 if self.rule.per == "at_once" else max(1.0, self.ends_in())

    def full_in(self) -> float:
        missing = self.rule.amount - self.left()
        if missing <= 0 or self.rule.per == "at_once":
            return 0.0
        return missing * MINUTE_S / self.rule.amount if self.rule.per == "minute" else max(0.0, self.ends_in())


class LocalLimit(CountedLimit):
    """Counts in memory. ``now`` and ``epoch`` are those of ``LimitStore.prepare``."""

    __slots__ = ("_at", "_ends", "_epoch", "_left", "_now")

    def __init__(self, rule: LimitRule, now: Callable[[], float], epoch: Callable[[], float]) -> None:
        self.rule = rule
        self._now = now
        self._epoch = epoch
        self._left = float(rule.amount)
        self._at = now()
        self._ends = end_of_period(rule.per, epoch()) if rule.per in ("day", "month") else 0.0

    def set_rule(self, rule: LimitRule) -> None:
        """Change the amount. What was taken stays taken."""
        if rule != self.rule:
            self._left = rule.amount - (self.rule.amount - self.left())
            self.rule = rule

    def take(self, amount: float) -> None:
        self._left -= amount

    def left(self) -> float:
        per = self.rule.per
        if per == "minute":
            now = self._now()
            self._left = min(self.rule.amount, self._left + (now - self._at) * self.rule.amount / MINUTE_S)
            self._at = now
        elif per != "at_once" and self._epoch() >= self._ends:
            self._left = float(self.rule.amount)
            self._ends = end_of_period(per, self._epoch())
        return self._left

    def ends_in(self) -> float:
        return self._ends - self._epoch()


class DroppedCounts:
    """Says once a minute that limits are dropped although something was taken of them. ``most``: how many are kept.

    ``said_at``: when it was said last, for several processes in memory that they share.
    """

    def __init__(self, most: int, said_at: list[float] | memoryview[float] | None = None) -> None:
        self._most = most
        self._said_at = [-MINUTE_S] if said_at is None else said_at

    def note(self, now: float) -> None:
        """Say so, unless that was less than a minute before ``now``."""
        if now >= self._said_at[0] + MINUTE_S:
            self._said_at[0] = now
            _log.warning("More than %d names have limits: those that were not used for longest start over", self._most)


class PassingLimits(Generic[_Kept]):
    """The limits of names that clients choose: the last used ones, and those in use. ``most``: how many are kept."""

    def __init__(self, most: int = MOST_PASSING) -> None:
        self._most = most
        self._limits: dict[str, _Kept] = {}
        self.lost = DroppedCounts(most)
        """Takes a note where a dropped limit was not whole."""

    def __iter__(self) -> Iterator[tuple[str, _Kept]]:
        return iter(self._limits.items())

    def get(self, name: str) -> _Kept | None:
        """The limit called ``name``, which is used now."""
        found = self._limits.pop(name, None)
        if found is not None:
            self._limits[name] = found
        return found

    def add(self, name: str, limit: _Kept) -> _Kept | None:
        """Keep another one. Returns the limit that is dropped for it, if any.

        Of limits ``at_once``, those in use stay, so there may be a few more.
        """
        dropped = self._drop_one() if len(self._limits) >= self._most else None
        self._limits[name] = limit
        return dropped

    def _drop_one(self) -> _Kept | None:
        for _ in range(_LOOKED_AT):
            name = next(iter(self._limits))
            limit = self._limits.pop(name)
            if not limit.in_use:
                return limit
            self._limits[name] = limit
        return None


class LocalLimitStore(LimitStore):
    """The base class of stores that end with their gateway, and so hand over what is taken."""

    @abstractmethod
    def kept(self) -> Iterable[tuple[str, CountedLimit, bool]]:
        """Return all limits with their names, and whether they are passing ones."""

    def taken(self) -> Mapping[str, TakenLimit]:
        found = {}
        for name, limit, passing in self.kept():
            rule = limit.rule
            amount = rule.amount - limit.left()
            if amount > 0 and rule.per != "at_once":
                found[name] = TakenLimit(rule, amount, passing)
        return found

    def recall(self, taken: Mapping[str, TakenLimit]) -> None:
        rules = {name: limit.rule for name, limit, _ in self.kept()}
        for name, each in taken.items():
            rule = rules.get(name, each.rule)
            limit = self.passing_limit(name, rule) if each.passing else self.limit(name, rule)
            limit.take(max(0.0, each.amount - (rule.amount - limit.left())))


def end_of_period(per: LimitPeriod, now: float) -> float:
    """When the ``day`` or ``month`` ends that it is ``now``, in seconds since the epoch."""
    if per == "day":
        return (now // _DAY_S + 1) * _DAY_S
    date = datetime.fromtimestamp(now, timezone.utc)
    year, month = (date.year, date.month + 1) if date.month < 12 else (date.year + 1, 1)
    return datetime(year, month, 1, tzinfo=timezone.utc).timestamp()
