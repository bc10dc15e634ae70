"""The limit store ``memory``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter, time

from enginehouse.callers import LimitRule
from enginehouse_kit.limit_stores import Limit
from enginehouse_kit.limits.local_limit import LocalLimit, LocalLimitStore, PassingLimits


class MemoryLimits(LocalLimitStore):
    """The limits of one gateway. A restart empties their counts; a take-over keeps them."""

    def __init__(self) -> None:
        self._now: Callable[[], float] = perf_counter
        self._epoch: Callable[[], float] = time
        self._limits: dict[str, LocalLimit] = {}
        self._passing: PassingLimits[LocalLimit] = PassingLimits()

    def prepare(self, url: str, now: Callable[[], float], epoch: Callable[[], float]) -> None:
        self._now, self._epoch = now, epoch

    def limit(self, name: str, rule: LimitRule) -> Limit:
        known = self._limits.get(name)
        if known is None:
            known = self._limits[name] = LocalLimit(rule, self._now, self._epoch)
        known.set_rule(rule)
        return known

    def passing_limit(self, name: str, rule: LimitRule) -> Limit:
        known = self._passing.get(name)
        if known is None:
            known = LocalLimit(rule, self._now, self._epoch)
            dropped = self._passing.add(name, known)
            if dropped is not None and dropped.left() < dropped.rule.amount:
                self._passing.lost.note(self._now())
        known.set_rule(rule)
        return known

    def kept(self) -> Iterator[tuple[str, LocalLimit, bool]]:
        for name, limit in self._limits.items():
            yield name, limit, False
        for name, limit in self._passing:
            yield name, limit, True
