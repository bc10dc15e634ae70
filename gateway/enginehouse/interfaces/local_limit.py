"""A limit that one process counts by itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime, timezone

from enginehouse.interfaces.limit_stores import Limit, LimitPeriod, LimitRule, LimitStore, TakenLimit

MINUTE_S = 60.0
_DAY_S = 86400.0


class CountedLimit(Limit):
    """A limit whose rest is known. ``rule``: its own."""

    rule: LimitRule

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


class LocalLimitStore(LimitStore):
    """The base class of stores that end with their gateway, and so hand over what is taken."""

    @abstractmethod
    def rules(self) -> Mapping[str, LimitRule]:
        """Return all limits."""

    def taken(self) -> Mapping[str, TakenLimit]:
        found = {}
        for name, rule in self.rules().items():
            amount = rule.amount - self.limit(name, rule).left()
            if amount > 0 and rule.per != "at_once":
                found[name] = TakenLimit(rule, amount)
        return found

    def recall(self, taken: Mapping[str, TakenLimit]) -> None:
        rules = self.rules()
        for name, each in taken.items():
            rule = rules.get(name, each.rule)
            limit = self.limit(name, rule)
            limit.take(max(0.0, each.amount - (rule.amount - limit.left())))


def end_of_period(per: LimitPeriod, now: float) -> float:
    """When the ``day`` or ``month`` ends that it is ``now``, in seconds since the epoch."""
    if per == "day":
        return (now // _DAY_S + 1) * _DAY_S
    date = datetime.fromtimestamp(now, timezone.utc)
    year, month = (date.year, date.month + 1) if date.month < 12 else (date.year + 1, 1)
    return datetime(year, month, 1, tzinfo=timezone.utc).timestamp()
