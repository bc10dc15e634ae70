"""Callers as keys and tokens describe them, and what their requests have reserved of their limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final, NamedTuple

from enginehouse import Requirements
from enginehouse.callers import AdmittedCaller, KeyLimitSettings, KeySettings, LimitAmounts, LimitLeft, UsageRow, moment
from enginehouse.errors import Forbidden, RateLimited
from enginehouse.requests import Tokens
from enginehouse_callers.caller_metrics import Totals
from enginehouse_callers.limit_set import LEAST_COST, LimitSet, NamedLimit, named_limits, token_limit
from enginehouse_callers.prices import Prices
from enginehouse_kit.limit_stores import Limit, LimitStore

_NEWEST: Final = 0.2
"""The weight of the newest request in the running average of a key's answers."""
_MOST_BEHALVES: Final = 1000
_MOST_TOKENS: Final = 1 << 40
"""Of an answer. Clients may ask for any number, and sums with larger ones would not be exact."""
_LONGEST_NAME: Final = 64


class CallerLimits:
    """What counts the limits of all callers: the store, and what models cost.

    ``refused``: the requests that limits have refused, by account and limit.
    """

    def __init__(self, store: LimitStore, prices: Prices) -> None:
        self.store = store
        self.prices = prices
        self.refused = Totals()

    def cost(self, model: str, tokens_in: float, tokens_cached: float, tokens_out: float) -> float:
        """The price of so many tokens of ``model``."""
        price = self.prices.of(model)
        return 0.0 if price is None else price.cost(tokens_in, tokens_cached, tokens_out)


class Reservation:
    """What a running request has reserved. ``lines``: the header lines that tell the client of its limits."""

    __slots__ = ("_account", "_cost", "_model", "_sets", "_tokens", "lines")

    def __init__(self, account: Account, sets: list[LimitSet], model: str, tokens: float, cost: float) -> None:
        self._account = account
        self._sets = sets
        self._model = model
        self._tokens = tokens
        self._cost = cost
        self.lines = sets[0].lines()

    def settle(self, prompt: int, answer: tuple[int, int, Tokens | None], model: str) -> None:
        """Count the request out, and what it used in place of what was reserved.

        ``prompt``: its estimated tokens, which count if the engine told none. ``model``: the one that served it, if
        any did. An answer that nobody counted costs what was reserved, and a request without an answer nothing.
        """
        size, events, counted = answer
        for each in self._sets:
            each.leave()
        if counted is not None:
            tokens_in, cached, tokens_out = counted.input, counted.cached or 0, counted.output
        elif size and not events:
            return
        else:
            tokens_in, cached, tokens_out = prompt if size else 0, 0, events
        used = tokens_in + tokens_out
        cost = self._account.limits.cost(model or self._model, tokens_in, cached, tokens_out)
        for each in self._sets:
            each.charge(used - self._tokens, cost - self._cost)
        if used:
            self._account.answered(max(0, used - prompt))


class _FurtherLimits(NamedTuple):
    """Limits for some models. The store counts them below ``name``. ``own``: ``None`` if each end user has them."""

    settings: KeyLimitSettings
    named: list[NamedLimit]
    name: str
    own: LimitSet | None


class Account:
    """What one caller has used of its limits, whichever of its credentials it shows. The store counts below ``name``.

    ``owner``: as errors about the caller's own limits call it. ``passing``: clients choose the name.
    """

    def __init__(self, name: str, limits: CallerLimits, owner: str, *, passing: bool = False) -> None:
        self.name = name
        self.limits = limits
        self._owner = owner
        self._passing = passing
        self._usual_answer = 0.0
        self._named: list[NamedLimit] = []
        self._own = LimitSet(name, owner, self._named, limits.store)
        self._more: list[_FurtherLimits] = []
        self.is_free = True

    def configure(self, amounts: LimitAmounts, more: Sequence[KeyLimitSettings] = ()) -> None:
        """Apply other limits: the caller's own, and ``more`` for some models or end users. Counts stay."""
        self._named = named_limits(amounts)
        if not self._passing:
            self._own.configure(self._named)
        self.is_free = not self._named and not more
        kept = {each.name: each.own for each in self._more}
        names = _names(more)
        self._more = []
        for name, settings in zip(names, more, strict=True):
            named, own = named_limits(settings), None
            if settings.per == "key":
                owner = f"{self._owner} for {', '.join(settings.models)}"
                own = kept.get(name) or LimitSet(f"{self.name}/{name}", owner, [], self.limits.store)
                own.configure(named)
            self._more.append(_FurtherLimits(settings, named, name, own))

    def admit(self, requirements: Requirements, answer_limit: int | None) -> Reservation | None:
        """Count a request in, or raise ``RateLimited`` or ``BudgetExhausted``.

        Returns ``None`` without limits. ``answer_limit``: the most tokens of its answer; without one, the usual answer
        is reserved.
        """
        if self.is_free:
            return None
        return self.reserve(self.sets(requirements.model, requirements.user or ""), requirements, answer_limit)

    def reserve(self, sets: list[LimitSet], requirements: Requirements, answer_limit: int | None) -> Reservation:
        """As ``admit``, with the limits of ``sets``. A request that one of them refuses counts in none of them."""
        model, prompt = requirements.model, requirements.estimated_tokens
        answer = min(answer_limit, _MOST_TOKENS) if answer_limit is not None else int(self._usual_answer)
        cost = max(self.limits.cost(model, prompt, 0, answer), LEAST_COST)
        wanted: list[tuple[Limit, float]] = []
        for each in sets:
            each.want(wanted, prompt + answer, cost)
        short = self.limits.store.take(wanted)
        if short is not None:
            error = _refused(sets, *short)
            self.limits.refused.add(self.name, error.details["limit"], 1)
            raise error
        for each in sets:
            each.enter()
        return Reservation(self, sets, model, prompt + answer, cost)

    def answered(self, tokens: int) -> None:
        """Remember the tokens of an answer: later ones are expected to be similar."""
        self._usual_answer += (tokens - self._usual_answer) * _NEWEST

    def recall(self, rows: Iterable[UsageRow], now: float) -> None:
        """Count what was used before the gateway started, as far as it was in this day or month (UTC)."""
        today, month = now // 86400 * 86400, month_of(now)
        for row in rows:
            hour = row.hour or 0
            if hour < month:
                continue
            is_new = hour >= today
            for each in self.sets(row.model or "", row.user or ""):
                each.recall(row.tokens_in + row.tokens_out if is_new else 0, row.cost if is_new else 0.0, row.cost)

    def left(self) -> Iterator[LimitLeft]:
        """What is left of all limits but those of end users."""
        yield from self.sets("", "")[0].left(("*",))
        for each in self._more:
            if each.own is not None:
                yield from each.own.left(each.settings.models)

    @property
    def counts_tokens(self) -> str:
        """The name of a limit that needs the tokens of answers; empty if there is none."""
        return next(filter(None, map(token_limit, (self._named, *(each.named for each in self._more)))), "")

    def sets(self, model: str, user: str) -> list[LimitSet]:
        """The limits that hold for a request of ``user`` to ``model``."""
        store = self.limits.store
        sets = [LimitSet(self.name, self._owner, self._named, store, passing=True) if self._passing else self._own]
        for each in self._more:
            if not any(fnmatchcase(model, pattern) for pattern in each.settings.models):
                continue
            if each.own is not None:
                sets.append(each.own)
            else:
                name, owner = f"{self.name}/{each.name}/user/{user}", f"User '{user}' of {_inside(self._owner)}"
                sets.append(LimitSet(name, owner, each.named, store, passing=True))
        return sets


class KeyHolder(AdmittedCaller):
    """The caller that one credential identifies: its rights, and the ``account`` of whom it belongs to.

    Rights belong to the credential: two tokens of one subject may have different ones.
    """

    # what requests read is declared here too: compiled code then keeps it in the object, not in its dictionary
    name: str
    models: tuple[str, ...]
    scoped: bool
    admin: bool
    priority: int
    weight: float
    ttft_objective: float
    gateway: bool
    through: str

    def __init__(self, key: KeySettings, account: Account) -> None:
        self.account = account
        self._behalves: dict[tuple[str, int], KeyHolder] = {}
        self.configure(key)

    def configure(self, key: KeySettings) -> None:
        """Apply other rights."""
        super().__init__(
            key.name,
            key.models,
            admin=key.admin,
            priority=key.priority,
            weight=key.weight,
            ttft_objective=key.ttft_objective,
            gateway=key.gateway,
        )
        self._behalves.clear()
        self.expires = moment(key.expires) if key.expires else math.inf

    def on_behalf(self, name: str, priority: int) -> KeyHolder:
        holder = self._behalves.get((name, priority))
        if holder is None:
            if len(self._behalves) >= _MOST_BEHALVES:
                self._behalves.clear()
            key = KeySettings(
                name=name,
                key="",
                models=list(self.models),
                priority=priority,
                weight=self.weight,
                ttft_objective=self.ttft_objective,
            )
            holder = self._behalves[name, priority] = KeyHolder(key, self.account)
            holder.through = self.name
        return holder

    def admit(self, requirements: Requirements, answer_limit: int | None) -> Reservation | None:
        if self.scoped:
            super().admit(requirements, answer_limit)
        return self.account.admit(requirements, answer_limit)

    def check_uncounted(self) -> None:
        if limit := self.account.counts_tokens:
            raise Forbidden(
                f"Key '{self.name}' has a token limit ({limit}), and tokens are counted only under /v1: "
                "use a path under /v1, or a key without that limit"
            )


def configured(known: KeyHolder | None, key: KeySettings, limits: CallerLimits) -> KeyHolder:
    """The holder of ``key``: the one that is ``known``, whose counts stay, or a new one."""
    holder = known or KeyHolder(key, Account(f"key/{key.name}", limits, f"Key '{key.name}'"))
    holder.configure(key)
    holder.account.configure(key, key.limits)
    return holder


def _names(more: Sequence[KeyLimitSettings]) -> list[str]:
    """Names of further limits, by their models: they are the same in all processes, and after any change of others."""
    names: list[str] = []
    alike: Counter[tuple[str, str]] = Counter()
    for settings in more:
        models = ",".join(settings.models)
        if len(models) > _LONGEST_NAME:
            models = blake2b(models.encode(), digest_size=16).hexdigest()
        number = alike[settings.per, models]
        alike[settings.per, models] += 1
        names.append(f"limits[{models}]{number or ''}")
    return names


def _refused(sets: list[LimitSet], place: int, wait: float) -> RateLimited:
    """The error for the limit at ``place``, of those of all ``sets``."""
    for each in sets:
        if place < each.size:
            return each.refused(place, wait)
        place -= each.size
    raise AssertionError("the store names a limit that nobody asked for")


def _inside(owner: str) -> str:
    """``owner`` in the middle of a sentence."""
    return owner[:1].lower() + owner[1:]


def month_of(epoch: float) -> float:
    """The beginning of the month (UTC) in which ``epoch`` lies, in seconds."""
    first = datetime.fromtimestamp(epoch, timezone.utc).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    return first.timestamp()
