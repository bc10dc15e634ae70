"""The limit store ``memory``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter, time

from enginehouse import Limit, LimitRule, LocalLimit, LocalLimitStore


class MemoryLimits(LocalLimitStore):
    """The limits of one gateway. A restart empties their counts; a take-over keeps them."""

    def __init__(self) -> None:
        self._now: Callable[[], float] = perf_counter
        self._epoch: Callable[[], float] = time
        self._limits: dict[str, LocalLimit] = {}

    def prepare(self, url: str, now: Callable[[], float], epoch: Callable[[], float]) -> None:
        self._now, self._epoch = now, epoch

    def limit(self, name: str, rule: LimitRule) -> Limit:
        known = self._limits.get(name)
        if known is None:
            known = self._limits[name] = LocalLimit(rule, self._now, self._epoch)
        known.set_rule(rule)
        return known

    def rules(self) -> Mapping[str, LimitRule]:
        return {name: limit.rule for name, limit in self._limits.items()}
