"""The limits of keys for all workers: counted in memory that they share, so that each of them is as exact as one."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, time
from typing import Final, get_args

from enginehouse.interfaces.limit_stores import Limit, LimitPeriod, LimitRule
from enginehouse.interfaces.local_limit import MINUTE_S, CountedLimit, LocalLimit, LocalLimitStore, end_of_period

_log = logging.getLogger(__name__)

_MOST_LIMITS: Final = 16384
_LONGEST_NAME: Final = 127
_PERIODS: Final[tuple[LimitPeriod, ...]] = get_args(LimitPeriod)
_USED, _AT, _AMOUNT, _PER = range(4)
_HEAD: Final = 4
"""The numbers of a limit before those of the processes: what is used, when that was so or when the period ends, and its
rule."""


class LimitMemory:
    """Numbers of limits in shared memory: whoever is forked after this has them too.

    A limit has a place by the hash of its name. A lock that the system takes back from a dead process guards what
    several processes change; what each of them has in use has a cell of its own.
    """

    def __init__(self, processes: int, most: int = _MOST_LIMITS) -> None:
        self.processes = processes
        self._most = most
        self._row = _HEAD + processes
        self._hashes = memoryview(mmap.mmap(-1, most * 8)).cast("Q")
        self._names = memoryview(mmap.mmap(-1, most * (1 + _LONGEST_NAME)))
        self._numbers = memoryview(mmap.mmap(-1, most * self._row * 8)).cast("d")
        with tempfile.TemporaryFile() as file:
            self._lock = os.dup(file.fileno())  # open as long as the process

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep the other processes from changing limits meanwhile."""
        fcntl.lockf(self._lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def find(self, name: str) -> memoryview[float] | None:
        """The numbers of a limit, all 0 for a new one; ``None`` if there is no room."""
        written = name.encode()
        wanted = int.from_bytes(hashlib.blake2b(written, digest_size=8).digest(), "big") or 1
        with self.locked():
            for step in range(self._most):
                place = (wanted + step) % self._most
                if self._hashes[place] in (0, wanted):
                    self._hashes[place] = wanted
                    if len(written) <= _LONGEST_NAME:
                        start = place * (1 + _LONGEST_NAME)
                        self._names[start : start + 1 + len(written)] = bytes((len(written), *written))
                    return self._numbers_at(place)
        return None

    def all(self) -> Iterator[tuple[str, memoryview[float]]]:
        """The names and numbers of all limits, but for those with very long names."""
        for place in range(self._most):
            start = place * (1 + _LONGEST_NAME) + 1
            if self._hashes[place] and (length := self._names[start - 1]):
                yield bytes(self._names[start : start + length]).decode(), self._numbers_at(place)

    def clear(self, process: int) -> None:
        """Free what a process that has died had in use."""
        for place in range(self._most):
            if self._hashes[place]:
                self._numbers[place * self._row + _HEAD + process] = 0.0

    def _numbers_at(self, place: int) -> memoryview[float]:
        return self._numbers[place * self._row : (place + 1) * self._row]


class SharedLimit(CountedLimit):
    """One limit, as all processes share it. ``own``: the cell of this process in ``numbers``."""

    def __init__(
        self,
        memory: LimitMemory,
        numbers: memoryview[float],
        own: int,
        rule: LimitRule,
        clocks: tuple[Callable[[], float], Callable[[], float]],
    ) -> None:
        self._memory = memory
        self._numbers = numbers
        self._own = own
        self._now, self._epoch = clocks
        self.set_rule(rule)

    def set_rule(self, rule: LimitRule) -> None:
        """Change the amount. What was taken stays taken."""
        self.rule = rule
        self._numbers[_AMOUNT], self._numbers[_PER] = rule.amount, _PERIODS.index(rule.per)

    def take(self, amount: float) -> None:
        if self.rule.per == "at_once":
            self._numbers[self._own] += amount
            return
        with self._memory.locked():
            self._refill()
            self._numbers[_USED] += amount

    def left(self) -> float:
        if self.rule.per == "at_once":
            return self.rule.amount - sum(self._numbers[_HEAD:])
        with self._memory.locked():
            self._refill()
            return self.rule.amount - self._numbers[_USED]

    def ends_in(self) -> float:
        return self._numbers[_AT] - self._epoch()

    def _refill(self) -> None:
        numbers, rule = self._numbers, self.rule
        if rule.per == "minute":
            now = self._now()
            numbers[_USED] = max(0.0, numbers[_USED] - (now - numbers[_AT]) * rule.amount / MINUTE_S)
            numbers[_AT] = now
        elif self._epoch() >= numbers[_AT]:
            numbers[_USED] = 0.0
            numbers[_AT] = end_of_period(rule.per, self._epoch())


class SharedLimitStore(LocalLimitStore):
    """The limits of one gateway with several processes, of which this is ``number``. They start anew with it."""

    def __init__(self, memory: LimitMemory, number: int) -> None:
        self._memory = memory
        self._number = number
        self._clocks: tuple[Callable[[], float], Callable[[], float]] = (perf_counter, time)
        self._limits: dict[str, SharedLimit] = {}

    def prepare(self, url: str, now: Callable[[], float], epoch: Callable[[], float]) -> None:
        self._clocks = now, epoch

    def limit(self, name: str, rule: LimitRule) -> Limit:
        known = self._limits.get(name)
        if known is None:
            numbers = self._memory.find(name)
            if numbers is None:
                _log.warning("There are too many limits: each worker counts '%s' by itself", name)
                return LocalLimit(rule, *self._clocks)
            known = self._limits[name] = SharedLimit(self._memory, numbers, _HEAD + self._number, rule, self._clocks)
        known.set_rule(rule)
        return known

    def rules(self) -> Mapping[str, LimitRule]:
        return {name: LimitRule(numbers[_AMOUNT], _PERIODS[int(numbers[_PER])]) for name, numbers in self._memory.all()}
