"""Sums up what callers use, until it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from enginehouse.callers import UsageRow
from enginehouse.records import RequestFacts
from enginehouse_callers.caller_metrics import Totals
from enginehouse_callers.prices import Prices
from enginehouse_kit.usage_stores import summed_up

HOUR_S: Final = 3600
_OTHER: Final = "other"
_LEFT: Final = "client_left"
_MOST_USERS: Final = 10_000
_MOST_BACK: Final = 20_000
"""The most rows that wait for a store that cannot write. With more, end users are no longer told apart."""
_NAMES: Final = UsageRow.__struct_fields__[:4]
_Names = tuple[int, "str | None", str, "str | None"]


@dataclass
class UsedSum:
    """The sum of some requests, in numbers that are faster to add to than those of a row."""

    requests: int = 0
    failed: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    seconds: float = 0.0

    def row(self, names: _Names) -> UsageRow:
        """This as the row of ``names``."""
        hour, key, model, user = names
        sums = self.requests, self.failed, self.tokens_in, self.tokens_cached, self.tokens_out, self.seconds
        return UsageRow(hour, key or "", model, user or "", *sums)


class UsageMeter:
    """Adds ended requests to sums by hour, key, model and end user. ``epoch`` tells the time of day in seconds.

    End users are named by clients: above ``most_users`` in an hour, further ones count as ``other``.
    """

    def __init__(self, epoch: Callable[[], float], prices: Prices, most_users: int = _MOST_USERS) -> None:
        self.prices = prices
        self._most_users = most_users
        self._epoch = epoch
        self._ends = 0.0
        self._hour = 0
        self._users: set[str] = set()
        self._sums: dict[_Names, UsedSum] = {}
        self._back: list[UsageRow] = []
        self.costs = Totals()
        """By key and model, since the start."""
        self.last_used: dict[str, float] = {}
        """When requests of each caller were last seen, since the start."""

    def add(self, facts: RequestFacts, model: str, prompt: int) -> None:
        """Add a request to ``model``; ``prompt``: the estimated tokens of its prompt, for engines that count none."""
        now = self._epoch()
        if not self._ends - HOUR_S <= now < self._ends:
            self._hour = int(now) // HOUR_S * HOUR_S
            self._ends = float(self._hour + HOUR_S)
            self._users.clear()
        user = facts.user
        names = (self._hour, facts.caller, model, None if user is None else self._known(user))
        used = self._sums.get(names)
        if used is None:
            used = self._sums[names] = UsedSum()
        used.requests += 1
        if facts.status >= 400:
            used.failed += 1
        sent, tokens_out = facts.sent, facts.tokens_out
        if not sent:
            return
        used.seconds += facts.ended - sent
        if tokens_out is not None:
            used.tokens_in += facts.tokens_in or 0
            used.tokens_cached += facts.tokens_cached or 0
            used.tokens_out += tokens_out
        elif facts.events or facts.outcome == _LEFT:  # then an engine has at least read the prompt
            used.tokens_in += prompt
            used.tokens_out += facts.events

    def _known(self, user: str) -> str:
        if user not in self._users:
            if len(self._users) >= self._most_users:
                return _OTHER
            self._users.add(user)
        return user

    def take(self) -> list[UsageRow]:
        """All sums since the last time, with their costs. They start over."""
        taken = [used.row(names) for names, used in self._sums.items()]
        for row in taken:
            if (price := self.prices.of(row.model or "")) is not None:
                row.cost = price.cost(row.tokens_in, row.tokens_cached, row.tokens_out)
        self._note(taken)
        back, self._sums, self._back = self._back, {}, []
        return summed_up([*back, *taken], _NAMES) if back else taken

    def receive(self, rows: Sequence[UsageRow]) -> None:
        """Add what another process has taken."""
        self._note(rows)
        self.put_back(rows)

    def _note(self, rows: Sequence[UsageRow]) -> None:
        now = self._epoch()
        if len(self.last_used) > _MOST_BACK:
            self.last_used.clear()
        for row in rows:
            self.last_used[row.key or ""] = now
            if row.cost:
                self.costs.add(row.key or "", row.model or "", row.cost)

    def put_back(self, rows: Iterable[UsageRow]) -> None:
        """Add ``rows`` that have their costs, such as those that could not be written. Changes none of them."""
        self._back = summed_up([*self._back, *rows], _NAMES)
        if len(self._back) > _MOST_BACK:
            for row in self._back:
                row.user = _OTHER if row.user else row.user
            self._back = summed_up(self._back, _NAMES)
