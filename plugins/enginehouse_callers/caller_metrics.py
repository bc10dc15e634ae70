"""Metrics of callers: what they cost, what is left of their limits, and which limits refuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from enginehouse.callers import LimitLeft
from enginehouse.services import MetricInfo

MOST_SERIES: Final = 1000
"""The most series of a metric: callers of identity providers are many, and operators may make many keys."""
_OTHER: Final = "other"

COST = MetricInfo(
    "counter",
    "enginehouse_cost",
    "What requests cost by `[prices]`, in their currency. Needs a usage store. With more than 1,000 series, further "
    "keys count as `other`.",
    ("key", "model"),
)
LIMIT = MetricInfo(
    "gauge",
    "enginehouse_limit",
    "The limits and budgets of keys, by their names in the configuration, such as `budget_per_month`; 1,000 of them "
    "at most. `models`: for which a limit holds, `*` for all.",
    ("key", "limit", "models"),
)
LIMIT_LEFT = MetricInfo(
    "gauge",
    "enginehouse_limit_left",
    "What is left of each `enginehouse_limit`. It is negative if more was used than expected.",
    LIMIT.labels,
)
LIMITED = MetricInfo(
    "counter",
    "enginehouse_limited",
    "Requests refused with 429 because of a limit; `key` is empty for limits of client addresses.",
    ("key", "limit"),
)
LIMITS_ALONE = MetricInfo(
    "gauge",
    "enginehouse_limits_alone",
    "1 while the limit store is lost, so that this gateway keeps to its share of the limits of keys.",
)
METRICS: Final = (COST, LIMIT, LIMIT_LEFT, LIMITED, LIMITS_ALONE)


class Totals:
    """Sums by two labels, the first of which names a caller. After ``MOST_SERIES``, further ones count together."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str], float] = {}

    def add(self, caller: str, what: str, amount: float) -> None:
        labels = (caller, what)
        if labels not in self._sums and len(self._sums) >= MOST_SERIES:
            labels = (_OTHER, what)
        self._sums[labels] = self._sums.get(labels, 0.0) + amount

    def take(self) -> list[tuple[str, str, float]]:
        """Return all sums since the last call, and start over."""
        taken = [(*labels, amount) for labels, amount in self._sums.items()]
        self._sums.clear()
        return taken

    def __iter__(self) -> Iterator[tuple[tuple[str, str], float]]:
        return iter(self._sums.items())


def limit_series(left: Iterable[tuple[str, LimitLeft]]) -> Mapping[tuple[str, str, str], LimitLeft]:
    """The limits of keys by the labels of ``LIMIT``; of two with the same ones, the last."""
    return {(name, each.limit, ",".join(each.models)): each for name, each in islice(left, MOST_SERIES)}


def key_of(account: str) -> str:
    """The label of an account: the name of its caller; empty for client addresses."""
    return "" if account == "address" else account.removeprefix("key/")
