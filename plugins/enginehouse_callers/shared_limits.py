"""The limits of callers for all workers: counted in memory that they share, so that each of them is as exact as one."""

from __future__ import annotations

import fcntl
import mmap
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from time import perf_counter, time
from typing import Final, get_args

from enginehouse.callers import LimitPeriod, LimitRule
from enginehouse_kit.limit_stores import Limit
from enginehouse_kit.limits.local_limit import (
    MINUTE_S,
    CountedLimit,
    DroppedCounts,
    LocalLimitStore,
    end_of_period,
)

_MOST_LIMITS: Final = 32_768
_MOST_PASSING: Final = 10_240
_WAYS: Final = 16
"""The places that a name may have. Looking at all of them takes the same time, however full the table is."""
_LONGEST_NAME: Final = 255
_PERIODS: Final[tuple[LimitPeriod, ...]] = get_args(LimitPeriod)
_USED, _AT, _AMOUNT, _PER, _SEEN = range(5)
_HEAD: Final = 5
"""The numbers of a limit before those of the processes: what is used, when that was so or when the period ends, its
rule, and when it was last used."""


class LimitTable:
    """Numbers of ``most`` limits in shared memory. Whoever calls a method keeps the others from changing it.

    A name has one of few places, by a hash with a secret ``salt``. If they are all taken, it gets the place of a limit
    that is whole, or else of the one that was not used for longest.
    """

    def __init__(self, processes: int, most: int, salt: bytes) -> None:
        self.most = most
        self._salt = salt
        self._row = _HEAD + processes
        self.ids = memoryview(mmap.mmap(-1, most * 8)).cast("Q")
        self._names = memoryview(mmap.mmap(-1, most * (1 + _LONGEST_NAME)))
        self._numbers = memoryview(mmap.mmap(-1, most * self._row * 8)).cast("d")

    def id_of(self, name: bytes) -> int:
        """The number by which a name is known; never 0."""
        return int.from_bytes(blake2b(name, digest_size=8, key=self._salt).digest(), "big") or 1

    def find(self, id: int, name: bytes, now: float, epoch: float) -> tuple[int, bool]:
        """The place of a limit, new or known, and whether another one that was not whole had to go."""
        start = id % (self.most // _WAYS) * _WAYS
        ids = self.ids[start : start + _WAYS].tolist()
        if id in ids:
            return start + ids.index(id), False
        lossy = False
        if 0 in ids:
            place = start + ids.index(0)
        else:
            place, lossy = self._reusable(start, now, epoch)
        numbers = self.numbers(place)
        for column in range(self._row):
            numbers[column] = 0.0
        written = name if len(name) <= _LONGEST_NAME else b""
        at = place * (1 + _LONGEST_NAME)
        self._names[at : at + 1 + len(written)] = bytes((len(written), *written))
        self.ids[place] = id
        return place, lossy

    def _reusable(self, start: int, now: float, epoch: float) -> tuple[int, bool]:
        oldest, seen = start, float("inf")
        for place in range(start, start + _WAYS):
            numbers = self.numbers(place)
            if _is_whole(numbers, now, epoch):
                return place, False
            if numbers[_SEEN] < seen and not any(numbers[_HEAD:]):
                oldest, seen = place, numbers[_SEEN]
        return oldest, True

    def numbers(self, place: int) -> memoryview[float]:
        """The numbers of the limit at ``place``."""
        return self._numbers[place * self._row : (place + 1) * self._row]

    def all(self) -> Iterator[tuple[str, int]]:
        """The names and places of all limits, but for those with very long names."""
        for place, id in enumerate(self.ids.tolist()):
            start = place * (1 + _LONGEST_NAME) + 1
            if id and (length := self._names[start - 1]):
                yield bytes(self._names[start : start + length]).decode(), place

    def clear(self, process: int) -> None:
        """Free what a process that has died had in use."""
        for place, id in enumerate(self.ids.tolist()):
            if id:
                self._numbers[place * self._row + _HEAD + process] = 0.0


def _is_whole(numbers: memoryview[float], now: float, epoch: float) -> bool:
    """Whether nothing of a limit is taken, so that it can start over without a difference."""
    per = _PERIODS[int(numbers[_PER])]
    if per == "at_once":
        return not any(numbers[_HEAD:])
    if per == "minute":
        return numbers[_USED] <= (now - numbers[_AT]) * numbers[_AMOUNT] / MINUTE_S
    return numbers[_USED] <= 0 or epoch >= numbers[_AT]


class LimitMemory:
    """The limits in shared memory: whoever is forked after this has them too.

    Those of names that clients choose have a table of their own, so that they take no place from those of keys. A lock
    that the system takes back from a dead process guards both.
    """

    def __init__(self, processes: int, most: int = _MOST_LIMITS, most_passing: int = _MOST_PASSING) -> None:
        salt = os.urandom(16)
        self.lasting = LimitTable(processes, most, salt)
        self.passing = LimitTable(processes, most_passing, salt)
        self.said_at = memoryview(mmap.mmap(-1, 8)).cast("d")
        self.said_at[0] = -MINUTE_S
        self._depth = 0
        with tempfile.TemporaryFile() as file:
            self._lock = os.dup(file.fileno())  # open as long as the process

    def lock(self) -> None:
        """Keep the other processes from changing limits until ``unlock``, which is called as often."""
        if not self._depth:
            fcntl.lockf(self._lock, fcntl.LOCK_EX)
        self._depth += 1

    def unlock(self) -> None:
        self._depth -= 1
        if not self._depth:
            fcntl.lockf(self._lock, fcntl.LOCK_UN)

    def clear(self, process: int) -> None:
        """Free what a process that has died had in use."""
        self.lasting.clear(process)
        self.passing.clear(process)


class SharedLimit(CountedLimit):
    """One limit in ``table``, as all processes share it. ``own``: the cell of this process."""

    __slots__ = ("_id", "_memory", "_name", "_numbers", "_own", "_place", "_store", "_table")

    def __init__(self, store: SharedLimitStore, table: LimitTable, name: str, rule: LimitRule, own: int) -> None:
        self.rule = rule
        self._store = store
        self._memory = store.memory
        self._table = table
        self._name = name.encode(errors="replace")
        self._id = table.id_of(self._name)
        self._own = own
        self._place = 0
        self._numbers = table.numbers(0)

    def set_rule(self, rule: LimitRule) -> None:
        """Change the amount. What was taken stays taken."""
        self.rule = rule
        self._memory.lock()
        try:
            self._current()
            self._numbers[_AMOUNT] = rule.amount
        finally:
            self._memory.unlock()

    def take(self, amount: float) -> None:
        self._memory.lock()
        try:
            self._current()
            numbers = self._numbers
            numbers[_SEEN] = self._store.now()
            if self.rule.per == "at_once":  # one that was dropped meanwhile gets back what it does not know
                numbers[self._own] = max(0.0, numbers[self._own] + amount)
            else:
                numbers[_USED] += amount
        finally:
            self._memory.unlock()

    def left(self) -> float:
        self._memory.lock()
        try:
            self._current()
            used: float = sum(self._numbers[_HEAD:]) if self.rule.per == "at_once" else self._numbers[_USED]
            return self.rule.amount - used
        finally:
            self._memory.unlock()

    def ends_in(self) -> float:
        return self._numbers[_AT] - self._store.epoch()

    def _current(self) -> None:
        """Bring the numbers up to date. The limit may have lost its place since the last time."""
        if self._table.ids[self._place] != self._id:
            self._find()
        numbers, rule = self._numbers, self.rule
        per = rule.per
        if per == "minute":
            now = self._store.now()
            numbers[_USED] = max(0.0, numbers[_USED] - (now - numbers[_AT]) * rule.amount / MINUTE_S)
            numbers[_AT] = now
        elif per != "at_once":
            epoch = self._store.epoch()
            if epoch >= numbers[_AT]:
                numbers[_USED] = 0.0
                numbers[_AT] = end_of_period(per, epoch)

    def _find(self) -> None:
        store, table, rule = self._store, self._table, self.rule
        now = store.now()
        self._place, lossy = table.find(self._id, self._name, now, store.epoch())
        if lossy:
            store.dropped.note(now)
        self._numbers = table.numbers(self._place)
        self._numbers[_AMOUNT], self._numbers[_PER] = rule.amount, _PERIODS.index(rule.per)


class SharedLimitStore(LocalLimitStore):
    """The limits of one gateway with several processes, of which this is ``number``. They start again with it."""

    def __init__(self, memory: LimitMemory, number: int) -> None:
        self.memory = memory
        self.dropped = DroppedCounts(memory.passing.most, memory.said_at)
        self.now: Callable[[], float] = perf_counter
        self.epoch: Callable[[], float] = time
        self._own = _HEAD + number
        self._limits: dict[str, SharedLimit] = {}

    def prepare(self, url: str, now: Callable[[], float], epoch: Callable[[], float]) -> None:
        self.now, self.epoch = now, epoch

    def limit(self, name: str, rule: LimitRule) -> Limit:
        known = self._limits.get(name)
        if known is None:
            known = self._limits[name] = SharedLimit(self, self.memory.lasting, name, rule, self._own)
        elif rule != known.rule:
            known.set_rule(rule)
        return known

    def passing_limit(self, name: str, rule: LimitRule) -> Limit:
        return SharedLimit(self, self.memory.passing, name, rule, self._own)

    def take(self, wanted: Sequence[tuple[Limit, float]]) -> tuple[int, float] | None:
        self.memory.lock()
        try:
            return super().take(wanted)
        finally:
            self.memory.unlock()

    def kept(self) -> Iterator[tuple[str, SharedLimit, bool]]:
        for table in (self.memory.lasting, self.memory.passing):
            for name, place in table.all():
                numbers = table.numbers(place)
                rule = LimitRule(numbers[_AMOUNT], _PERIODS[int(numbers[_PER])])
                yield name, SharedLimit(self, table, name, rule, self._own), table is self.memory.passing
