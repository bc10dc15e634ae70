"""Client keys and their limits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from enginehouse.config.schema import KeySettings
from enginehouse.domain.errors import Forbidden, RateLimited, Unauthorized
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.interfaces.limit_stores import Limit, LimitPeriod, LimitRule, LimitStore
from enginehouse.relay.heads.behalf import Behalf, read_behalf

_MOST_BEHALVES: Final = 1000
_NEWEST: Final = 0.2
"""The weight of the newest request in the running average of a key's answers."""


class KeyHolder:
    """The ``Caller`` that a key identifies. ``store`` counts what it has used of its limits.

    ``counted_as``: the name of the limits; by default that of the key. ``gateway``: another gateway has the key.
    """

    def __init__(self, key: KeySettings, store: LimitStore, counted_as: str = "") -> None:
        self._store = store
        self._counted_as = counted_as or key.name
        self._behalves: dict[Behalf, KeyHolder] = {}
        self._running = 0
        self._requests: Limit | None = None
        self._tokens: Limit | None = None
        self._slots: Limit | None = None
        self._usual_answer = 0.0
        self.configure(key)

    def configure(self, key: KeySettings) -> None:
        """Apply other settings. Counts stay."""
        self.name = key.name
        self.gateway = key.gateway
        self._key = key
        self._behalves.clear()
        self.admin = key.admin
        self.priority = key.priority
        self.weight = key.weight
        self.ttft_objective = key.ttft_objective
        self._models = tuple(key.models)
        self.scoped = "*" not in key.models
        self._most = key.max_concurrent
        self._requests = self._limit("requests_per_minute", key.requests_per_minute, "minute")
        self._tokens = self._limit("tokens_per_minute", key.tokens_per_minute, "minute")
        slots = self._limit("max_concurrent", key.max_concurrent, "at_once")
        if slots is not self._slots:
            if self._slots is not None:
                self._slots.take(-self._running)
            if slots is not None:
                slots.take(self._running)
            self._slots = slots

    def _limit(self, what: str, amount: int, per: LimitPeriod) -> Limit | None:
        """One of the key's limits; ``None`` if there is none."""
        return self._store.limit(f"{self._counted_as}/{what}", LimitRule(amount, per)) if amount else None

    def on_behalf(self, behalf: Behalf) -> KeyHolder:
        """Whoever sent the request to the gateway that has this key. The limits are still those of the key."""
        holder = self._behalves.get(behalf)
        if holder is None:
            if len(self._behalves) >= _MOST_BEHALVES:
                self._behalves.clear()
            key = msgspec.structs.replace(self._key, name=behalf.caller, priority=behalf.priority, admin=False)
            holder = self._behalves[behalf] = KeyHolder(key, self._store, self._counted_as)
        return holder

    def may_use(self, model: str) -> bool:
        """Whether the key's ``models`` include ``model``."""
        return any(pattern == "*" or fnmatchcase(model, pattern) for pattern in self._models)

    def admit(self, requirements: Requirements, answer_limit: int | None) -> int:
        """Count a request in, or raise ``Forbidden`` or ``RateLimited``. Returns the tokens reserved for it.

        ``answer_limit``: the most tokens of its answer; without one, the key's usual answer is reserved.
        """
        if not self.may_use(requirements.model):
            raise Forbidden(f"Key '{self.name}' may not use model '{requirements.model}'", param="model")
        if self._slots is not None and self._slots.seconds_short(1) > 0:
            raise RateLimited(f"Key '{self.name}' already has {self._most} requests running (max_concurrent)")
        tokens = requirements.estimated_tokens
        if self._tokens is not None:
            tokens += answer_limit if answer_limit is not None else int(self._usual_answer)
        wait = max(_seconds_short(self._requests, 1), _seconds_short(self._tokens, tokens))
        if wait > 0:
            raise RateLimited(f"Key '{self.name}' is over its rate limit", retry_after=int(wait) + 1)
        if self._requests is not None:
            self._requests.take(1)
        if self._tokens is not None:
            self._tokens.take(tokens)
        self._running += 1
        if self._slots is not None:
            self._slots.take(1)
        return tokens

    def check_uncounted(self) -> None:
        """Raise ``Forbidden`` for a key with a token limit: this request's tokens cannot be counted."""
        if self._tokens is not None:
            raise Forbidden(
                f"Key '{self.name}' has a token limit (tokens_per_minute), and tokens are counted only under /v1: "
                "use a path under /v1, or a key without that limit"
            )

    def release(self, prompt: int, reserved: int, used: int | None) -> None:
        """Count a request out, and what it really used instead of what was reserved."""
        self._running -= 1
        if self._slots is not None:
            self._slots.take(-1)
        if used is not None and self._tokens is not None:
            self._tokens.take(used - reserved)
            self._usual_answer += (max(0, used - prompt) - self._usual_answer) * _NEWEST


class Keyring:
    """All keys. Without any, every caller may do everything. ``store`` counts what they have used of their limits."""

    def __init__(self, keys: Sequence[KeySettings], store: LimitStore) -> None:
        self._store = store
        self._holders: dict[bytes, KeyHolder] = {}
        self.configure(keys)

    def configure(self, keys: Sequence[KeySettings]) -> None:
        """Replace the keys. A key keeps its counts if its name stays, even with another secret."""
        known = {holder.name: holder for holder in self._holders.values()}
        self._holders = {}
        for key in keys:
            if (holder := known.get(key.name)) is None:
                holder = KeyHolder(key, self._store)
            else:
                holder.configure(key)
            self._holders[_digest(key.key.encode())] = holder

    def caller(self, headers: Headers) -> KeyHolder | None:
        """The caller whose key is in ``Authorization: Bearer`` or ``x-api-key``; ``None`` if no keys are set.

        Raises ``Unauthorized``.
        """
        if not self._holders:
            return None
        shown = _shown(headers)
        holder = self._holders.get(_digest(shown)) if shown else None
        if holder is None:
            problem = "Unknown API key" if shown else "No API key: send it as 'Authorization: Bearer KEY'"
            raise Unauthorized(problem)
        behalf = read_behalf(headers) if holder.gateway else None
        return holder if behalf is None else holder.on_behalf(behalf)

    def named(self, name: str) -> KeyHolder | None:
        """The holder of the key called ``name``; ``None`` if there is no such key."""
        return next((holder for holder in self._holders.values() if holder.name == name), None)

    def admin(self, headers: Headers) -> KeyHolder | None:
        """The caller, as ``caller``. Also raises ``Forbidden`` unless its key is an admin key."""
        holder = self.caller(headers)
        if holder is not None and not holder.admin:
            raise Forbidden(f"Key '{holder.name}' is no admin key")
        return holder


def _seconds_short(limit: Limit | None, amount: float) -> float:
    return 0.0 if limit is None else limit.seconds_short(amount)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _shown(headers: Headers) -> bytes:
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name in (b"x-api-key", b"api-key"):
            return value.strip()
    return b""
