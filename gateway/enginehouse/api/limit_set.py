"""The limits of one caller, or of a caller for some models or one end user."""

from __future__ import annotations

from typing import Final

from enginehouse.config.auth import LimitAmounts
from enginehouse.domain.errors import BudgetExhausted, RateLimited
from enginehouse.interfaces.limit_stores import Limit, LimitPeriod, LimitRule, LimitStore

_LEAST_COST: Final = 1e-9
"""What a request costs at least, so that a spent budget refuses those without a price too."""


class LimitSet:
    """The limits that ``amounts`` names; ``store`` counts them, below ``name``. ``owner``: as errors call it."""

    def __init__(self, name: str, owner: str, amounts: LimitAmounts, store: LimitStore) -> None:
        self.owner = owner
        self._name = name
        self._store = store
        self._running = 0
        self._slots: Limit | None = None
        self.configure(amounts)

    def configure(self, amounts: LimitAmounts) -> None:
        """Apply other amounts. Counts stay."""
        self._amounts = amounts
        self._requests = self._limit("requests_per_minute", amounts.requests_per_minute, "minute")
        self._tokens = self._limit("tokens_per_minute", amounts.tokens_per_minute, "minute")
        self._day_tokens = self._limit("tokens_per_day", amounts.tokens_per_day, "day")
        self._day_costs = self._limit("budget_per_day", amounts.budget_per_day, "day")
        self._month_costs = self._limit("budget_per_month", amounts.budget_per_month, "month")
        slots = self._limit("max_concurrent", amounts.max_concurrent, "at_once")
        if slots is not self._slots:
            if self._slots is not None:
                self._slots.take(-self._running)
            if slots is not None:
                slots.take(self._running)
            self._slots = slots

    def _limit(self, what: str, amount: float, per: LimitPeriod) -> Limit | None:
        return self._store.limit(f"{self._name}/{what}", LimitRule(amount, per)) if amount else None

    @property
    def counts_tokens(self) -> str:
        """The key of a limit that needs the tokens of answers; empty if there is none."""
        amounts = self._amounts
        for key in ("tokens_per_minute", "tokens_per_day", "budget_per_day", "budget_per_month"):
            if getattr(amounts, key):
                return key
        return ""

    def check(self, tokens: float, cost: float) -> None:
        """Raise ``RateLimited`` or ``BudgetExhausted`` for a request that is expected to use so much."""
        if self._slots is not None and self._slots.seconds_short(1) > 0:
            most = self._amounts.max_concurrent
            raise self._refused(f"already has {most} requests running (max_concurrent)", 1.0)
        wait = max(_short(self._requests, 1), _short(self._tokens, tokens))
        if wait > 0:
            raise self._refused("is over its rate limit", wait)
        wait = _short(self._day_tokens, tokens)
        if wait > 0:
            raise self._refused("has used its tokens of the day (tokens_per_day)", wait)
        cost = max(cost, _LEAST_COST)
        wait = _short(self._day_costs, cost)
        if wait > 0:
            raise self._exhausted("has spent its budget of the day (budget_per_day)", wait)
        wait = _short(self._month_costs, cost)
        if wait > 0:
            raise self._exhausted("has spent its budget of the month (budget_per_month)", wait)

    def _refused(self, why: str, wait: float) -> RateLimited:
        error = RateLimited(f"{self.owner} {why}", retry_after=int(wait) + 1)
        error.lines = self.lines()
        return error

    def _exhausted(self, why: str, wait: float) -> BudgetExhausted:
        error = BudgetExhausted(f"{self.owner} {why}", retry_after=int(wait) + 1)
        error.lines = self.lines()
        return error

    def take(self, tokens: float, cost: float) -> None:
        """Count a request in that is expected to use so much."""
        self._running += 1
        if self._slots is not None:
            self._slots.take(1)
        if self._requests is not None:
            self._requests.take(1)
        self.charge(tokens, cost)

    def leave(self) -> None:
        """Count a request out."""
        self._running -= 1
        if self._slots is not None:
            self._slots.take(-1)

    def charge(self, tokens: float, cost: float) -> None:
        """Count so much more. Negative amounts come back."""
        if self._tokens is not None:
            self._tokens.take(tokens)
        self.recall(tokens, cost, cost)

    def recall(self, tokens: float, day_cost: float, month_cost: float) -> None:
        """Count what was used in this day and month before the gateway started."""
        if self._day_tokens is not None:
            self._day_tokens.take(tokens)
        if self._day_costs is not None:
            self._day_costs.take(day_cost)
        if self._month_costs is not None:
            self._month_costs.take(month_cost)

    def lines(self) -> bytes:
        """The header lines that tell clients of the limits, as OpenAI has them; empty without such limits."""
        lines = b""
        if self._requests is not None:
            lines = _lines(b"requests", self._requests, self._amounts.requests_per_minute)
        if self._tokens is not None:
            return lines + _lines(b"tokens", self._tokens, self._amounts.tokens_per_minute)
        if self._day_tokens is not None:
            return lines + _lines(b"tokens", self._day_tokens, self._amounts.tokens_per_day)
        return lines


def _short(limit: Limit | None, amount: float) -> float:
    return 0.0 if limit is None else limit.seconds_short(amount)


def _lines(what: bytes, limit: Limit, amount: int) -> bytes:
    return b"x-ratelimit-limit-%s: %d\r\nx-ratelimit-remaining-%s: %d\r\nx-ratelimit-reset-%s: %.3fs\r\n" % (
        what,
        amount,
        what,
        max(0, int(limit.left())),
        what,
        limit.full_in(),
    )
