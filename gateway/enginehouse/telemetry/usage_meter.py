"""Sums up what callers use, until it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from enginehouse.config.usage import Prices
from enginehouse.domain.request_record import RequestRecord
from enginehouse.domain.usage import UsageRow
from enginehouse.telemetry.counters import OTHER

HOUR_S: Final = 3600
_MOST_USERS: Final = 10_000
_Names = tuple[int, str, str, str]


class UsageMeter:
    """Adds ended requests to sums by hour, key, model and end user. ``epoch`` tells the time of day in seconds.

    End users are named by clients: above 10,000 in an hour, further ones count as ``other``.
    """

    def __init__(self, epoch: Callable[[], float], prices: Prices) -> None:
        self.prices = prices
        self._epoch = epoch
        self._hour = 0
        self._users: set[str] = set()
        self._sums: dict[_Names, UsageRow] = {}

    def add(self, record: RequestRecord, model: str, prompt: int) -> None:
        """Add a request to ``model``; ``prompt``: the estimated tokens of its prompt, for engines that count none."""
        hour = int(self._epoch()) // HOUR_S * HOUR_S
        if hour != self._hour:
            self._hour = hour
            self._users.clear()
        user = record.user or ""
        if user and user not in self._users:
            if len(self._users) < _MOST_USERS:
                self._users.add(user)
            else:
                user = OTHER
        names = (hour, record.caller or "", model, user)
        row = self._sums.get(names)
        if row is None:
            row = self._sums[names] = UsageRow(*names)
        row.requests += 1
        if record.status >= 400:
            row.failed += 1
        if record.sent is None:
            return
        row.seconds += record.ended - record.sent
        tokens_in, tokens_cached, tokens_out = used_tokens(record, prompt)
        row.tokens_in += tokens_in
        row.tokens_cached += tokens_cached
        row.tokens_out += tokens_out
        if (price := self.prices.of(model)) is not None:
            row.cost += price.cost(tokens_in, tokens_cached, tokens_out)

    def take(self) -> list[UsageRow]:
        """All sums since the last time. They begin anew."""
        taken = list(self._sums.values())
        self._sums = {}
        return taken

    def put_back(self, rows: Iterable[UsageRow]) -> None:
        """Add ``rows`` again, which could not be written."""
        for row in rows:
            names = (row.hour or 0, row.key or "", row.model or "", row.user or "")
            if (known := self._sums.get(names)) is None:
                self._sums[names] = row
            else:
                known.add(row)


def used_tokens(record: RequestRecord, prompt: int) -> tuple[int, int, int]:
    """The tokens in, those of them that were cached, and the tokens out; estimated if the engine counted none."""
    if record.tokens_out is not None:
        return record.tokens_in or 0, record.tokens_cached or 0, record.tokens_out
    return (prompt, 0, record.events) if record.first_byte is not None and record.events else (0, 0, 0)
