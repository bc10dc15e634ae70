"""The limits of one caller, or of a caller for some models or one end user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from enginehouse.config.auth import LimitAmounts
from enginehouse.domain.errors import BudgetExhausted, RateLimited
from enginehouse.interfaces.limit_stores import Limit, LimitPeriod, LimitRule, LimitStore

_LEAST_COST: Final = 1e-9
"""What a request costs at least, so that a spent budget refuses those without a price too."""


_ONE: Final = 0
_TOKENS: Final = 1
_COSTS: Final = 2
_RULES: Final[tuple[tuple[str, LimitPeriod, int, str], ...]] = (
    ("max_concurrent", "at_once", _ONE, "already has {} requests running (max_concurrent)"),
    ("requests_per_minute", "minute", _ONE, "is over its rate limit"),
    ("tokens_per_minute", "minute", _TOKENS, "is over its rate limit"),
    ("tokens_per_day", "day", _TOKENS, "has used its tokens of the day (tokens_per_day)"),
    ("budget_per_day", "day", _COSTS, "has spent its budget of the day (budget_per_day)"),
    ("budget_per_month", "month", _COSTS, "has spent its budget of the month (budget_per_month)"),
)
"""Each key, its period, what it counts, and what errors say of its owner."""


@dataclass
class LimitInForce:
    """A limit that an owner has. ``counts``: one for each request, or its tokens, or its costs."""

    key: str
    per: LimitPeriod
    counts: int
    why: str
    amount: float
    limit: Limit


class LimitSet:
    """The limits that ``amounts`` names; ``store`` counts them, below ``name``. ``owner``: as errors call it."""

    def __init__(self, name: str, owner: str, amounts: LimitAmounts, store: LimitStore) -> None:
        self.owner = owner
        self._name = name
        self._store = store
        self._running = 0
        self._limits: list[LimitInForce] = []
        self.configure(amounts)

    def configure(self, amounts: LimitAmounts) -> None:
        """Apply other amounts. Counts stay."""
        before, self._limits = self._slots(), []
        for key, per, counts, why in _RULES:
            amount = float(getattr(amounts, key))
            if amount:
                limit = self._store.limit(f"{self._name}/{key}", LimitRule(amount, per))
                self._limits.append(LimitInForce(key, per, counts, why, amount, limit))
        slots = self._slots()
        if slots is not before:
            if before is not None:
                before.take(-self._running)
            if slots is not None:
                slots.take(self._running)

    def _slots(self) -> Limit | None:
        first = self._limits[0] if self._limits else None
        return first.limit if first is not None and first.per == "at_once" else None

    @property
    def is_empty(self) -> bool:
        """Whether there is no limit."""
        return not self._limits

    @property
    def counts_tokens(self) -> str:
        """The key of a limit that needs the tokens of answers; empty if there is none."""
        return next((each.key for each in self._limits if each.counts != _ONE), "")

    def check(self, tokens: float, cost: float) -> None:
        """Raise ``RateLimited`` or ``BudgetExhausted`` for a request that is expected to use so much."""
        for each in self._limits:
            counts = each.counts
            amount = 1.0 if counts == _ONE else tokens if counts == _TOKENS else max(cost, _LEAST_COST)
            wait = each.limit.seconds_short(amount)
            if wait > 0:
                raise self._refused(each, wait)

    def _refused(self, short: LimitInForce, wait: float) -> RateLimited:
        text = f"{self.owner} {short.why.format(int(short.amount))}"
        error = (BudgetExhausted if short.counts == _COSTS else RateLimited)(text, retry_after=int(wait) + 1)
        error.lines = self.lines()
        return error

    def take(self, tokens: float, cost: float) -> None:
        """Count a request in that is expected to use so much."""
        self._running += 1
        for each in self._limits:
            counts = each.counts
            each.limit.take(1.0 if counts == _ONE else tokens if counts == _TOKENS else cost)

    def leave(self) -> None:
        """Count a request out."""
        self._running -= 1
        slots = self._slots()
        if slots is not None:
            slots.take(-1.0)

    def charge(self, tokens: float, cost: float) -> None:
        """Count so much more. Negative amounts come back."""
        for each in self._limits:
            if each.counts != _ONE:
                each.limit.take(tokens if each.counts == _TOKENS else cost)

    def recall(self, tokens: float, day_cost: float, month_cost: float) -> None:
        """Count what was used in this day and month before the gateway started."""
        for each in self._limits:
            if each.per == "day":
                each.limit.take(tokens if each.counts == _TOKENS else day_cost)
            elif each.per == "month":
                each.limit.take(month_cost)

    def lines(self) -> bytes:
        """The header lines that tell clients of the limits, as OpenAI has them; empty without such limits."""
        lines, tokens_told = b"", False
        for each in self._limits:
            if each.per == "minute" and each.counts == _ONE:
                lines += _lines(b"requests", each)
            elif each.counts == _TOKENS and not tokens_told:
                tokens_told = True
                lines += _lines(b"tokens", each)
        return lines


def _lines(what: bytes, told: LimitInForce) -> bytes:
    left = told.limit.left()
    seconds = max(0.0, (told.amount - left) * 60 / told.amount) if told.per == "minute" else told.limit.full_in()
    return b"x-ratelimit-limit-%s: %d\r\nx-ratelimit-remaining-%s: %d\r\nx-ratelimit-reset-%s: %.3fs\r\n" % (
        what,
        int(told.amount),
        what,
        max(0, int(left)),
        what,
        seconds,
    )
