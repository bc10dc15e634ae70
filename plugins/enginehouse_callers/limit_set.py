"""The limits of one caller, or of a caller for some models or one end user."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from enginehouse.callers import LimitAmounts, LimitLeft, LimitPeriod, LimitRule
from enginehouse.errors import BudgetExhausted, RateLimited
from enginehouse_kit.limit_stores import Limit, LimitStore

LEAST_COST: Final = 1e-9
"""What a request costs at least, so that a spent budget refuses those without a price too."""
_PRINTABLE: Final = "".join(chr(code) for code in range(32, 127) if chr(code) != "%")
"""What a header shows as it is. Other characters of names are percent-encoded."""


_ONE: Final = 0
_TOKENS: Final = 1
_COSTS: Final = 2
_RULES: Final[tuple[tuple[str, LimitPeriod, int, str], ...]] = (
    ("max_concurrent", "at_once", _ONE, "already has {} requests running (max_concurrent)"),
    ("requests_per_minute", "minute", _ONE, "is over its rate limit (requests_per_minute = {})"),
    ("tokens_per_minute", "minute", _TOKENS, "is over its rate limit (tokens_per_minute = {})"),
    ("tokens_per_day", "day", _TOKENS, "has used its tokens of the day (tokens_per_day)"),
    ("budget_per_day", "day", _COSTS, "has spent its budget of the day (budget_per_day)"),
    ("budget_per_month", "month", _COSTS, "has spent its budget of the month (budget_per_month)"),
)
"""Each key, its period, what it counts, and what errors say of its owner."""


@dataclass
class NamedLimit:
    """A limit as a configuration has it. ``counts``: one for each request, or its tokens, or its costs."""

    key: str
    rule: LimitRule
    counts: int
    why: str


@dataclass
class LimitInForce:
    """A limit that an owner has."""

    named: NamedLimit
    limit: Limit


def named_limits(amounts: LimitAmounts) -> list[NamedLimit]:
    """The limits that ``amounts`` names."""
    found = [(key, float(getattr(amounts, key)), per, counts, why) for key, per, counts, why in _RULES]
    return [NamedLimit(key, LimitRule(amount, per), counts, why) for key, amount, per, counts, why in found if amount]


class LimitSet:
    """Some limits of one owner; ``store`` counts them, below ``name``. ``owner``: as errors call it.

    ``passing``: clients choose the name, so the set is made again for each request.
    """

    def __init__(
        self, name: str, owner: str, named: list[NamedLimit], store: LimitStore, *, passing: bool = False
    ) -> None:
        self.owner = owner
        self._name = name
        self._limit = store.passing_limit if passing else store.limit
        self._running = 0
        self._limits: list[LimitInForce] = []
        self.configure(named)

    def configure(self, named: list[NamedLimit]) -> None:
        """Apply other limits. Counts stay."""
        before = self._slots()
        self._limits = [LimitInForce(each, self._limit(f"{self._name}/{each.key}", each.rule)) for each in named]
        slots = self._slots()
        if slots is not before:
            if before is not None:
                before.take(-self._running)
            if slots is not None:
                slots.take(self._running)

    def _slots(self) -> Limit | None:
        first = self._limits[0] if self._limits else None
        return first.limit if first is not None and first.named.rule.per == "at_once" else None

    @property
    def size(self) -> int:
        """The number of limits."""
        return len(self._limits)

    def want(self, wanted: list[tuple[Limit, float]], tokens: float, cost: float) -> None:
        """Add to ``wanted`` what a request takes that is expected to use so much."""
        for each in self._limits:
            counts = each.named.counts
            wanted.append((each.limit, 1.0 if counts == _ONE else tokens if counts == _TOKENS else cost))

    def refused(self, place: int, wait: float) -> RateLimited:
        """The error for a request that the limit at ``place`` refuses."""
        short = self._limits[place].named
        text = f"{self.owner} {short.why.format(int(short.rule.amount))}"
        details = {"limit": short.key, "amount": short.rule.amount, "of": self.owner}
        kind = BudgetExhausted if short.counts == _COSTS else RateLimited
        error = kind(text, details=details, retry_after=int(wait) + 1)
        named = f"x-enginehouse-limit: {short.key}\r\nx-enginehouse-limit-of: {quote(self.owner, safe=_PRINTABLE)}\r\n"
        error.lines = self.lines() + named.encode("ascii")
        return error

    def enter(self) -> None:
        """Note that a request has taken what it ``wanted``."""
        self._running += 1

    def leave(self) -> None:
        """Count a request out."""
        self._running -= 1
        slots = self._slots()
        if slots is not None:
            slots.take(-1.0)

    def charge(self, tokens: float, cost: float) -> None:
        """Count so much more. Negative amounts come back."""
        for each in self._limits:
            counts = each.named.counts
            if counts != _ONE:
                each.limit.take(tokens if counts == _TOKENS else cost)

    def recall(self, tokens: float, day_cost: float, month_cost: float) -> None:
        """Count what was used in this day and month before the gateway started."""
        for each in self._limits:
            per = each.named.rule.per
            if per == "day":
                each.limit.take(tokens if each.named.counts == _TOKENS else day_cost)
            elif per == "month":
                each.limit.take(month_cost)

    def left(self, models: Sequence[str]) -> Iterator[LimitLeft]:
        """What is left of each limit. ``models``: for which they hold."""
        for each in self._limits:
            limit, named = each.limit, each.named
            yield LimitLeft(
                limit=named.key, models=models, amount=named.rule.amount, left=limit.left(), full_in=limit.full_in()
            )

    def lines(self) -> bytes:
        """The header lines that tell clients of the limits, as OpenAI has them; empty without such limits."""
        lines, tokens_told = b"", False
        for each in self._limits:
            counts = each.named.counts
            if each.named.rule.per == "minute" and counts == _ONE:
                lines += _lines(b"requests", each)
            elif counts == _TOKENS and not tokens_told:
                tokens_told = True
                lines += _lines(b"tokens", each)
        return lines


def token_limit(named: list[NamedLimit]) -> str:
    """The key of a limit that needs the tokens of answers; empty if there is none."""
    return next((each.key for each in named if each.counts != _ONE), "")


def _lines(what: bytes, told: LimitInForce) -> bytes:
    left, rule = told.limit.left(), told.named.rule
    seconds = max(0.0, (rule.amount - left) * 60 / rule.amount) if rule.per == "minute" else told.limit.full_in()
    return b"x-ratelimit-limit-%s: %d\r\nx-ratelimit-remaining-%s: %d\r\nx-ratelimit-reset-%s: %.3fs\r\n" % (
        what,
        int(rule.amount),
        what,
        max(0, int(left)),
        what,
        seconds,
    )
