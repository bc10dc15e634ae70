"""Client keys: who may come in, and how much each may do."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from time import monotonic

from enginehouse.config.schema import Key
from enginehouse.domain.errors import Forbidden, RateLimited, Unauthorized
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements


class _PerMinute:
    """A token bucket that holds one minute's worth; ``limit`` 0 is no limit."""

    def __init__(self, limit: int, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._left = float(limit)
        self._at = clock()
        self._clock = clock

    def allow(self, limit: int) -> None:
        """From now on ``limit``; what was used up stays so."""
        if limit != self.limit:
            self.seconds_short(0)
            used = self.limit - self._left if self.limit else 0.0
            self.limit = limit
            self._left = limit - used
            self._at = self._clock()

    def seconds_short(self, amount: int) -> float:
        """How long until ``amount`` could be taken; more than a minute's worth counts as a minute's."""
        if not self.limit:
            return 0.0
        now = self._clock()
        self._left = min(self.limit, self._left + (now - self._at) * self.limit / 60)
        self._at = now
        return max(0.0, (min(amount, self.limit) - self._left) * 60 / self.limit)

    def take(self, amount: int) -> None:
        """Use ``amount`` up."""
        self._left -= amount


class KeyHolder:
    """A ``Caller`` who showed a key."""

    def __init__(self, key: Key, clock: Callable[[], float]) -> None:
        self._now = 0
        self._requests = _PerMinute(key.requests_per_minute, clock)
        self._tokens = _PerMinute(key.tokens_per_minute, clock)
        self.become(key)

    def become(self, key: Key) -> None:
        """May from now on what ``key`` says; what was counted stays."""
        self.name = key.name
        self.admin = key.admin
        self.priority = key.priority
        self._models = tuple(key.models)
        self._most = key.max_concurrent
        self._requests.allow(key.requests_per_minute)
        self._tokens.allow(key.tokens_per_minute)

    def may_use(self, model: str) -> bool:
        """Whether the key is good for ``model``."""
        return any(pattern == "*" or fnmatchcase(model, pattern) for pattern in self._models)

    def admit(self, requirements: Requirements) -> None:
        """Count a request in, or raise ``Forbidden`` or ``RateLimited``."""
        if not self.may_use(requirements.model):
            raise Forbidden(f"Key '{self.name}' may not use model '{requirements.model}'", param="model")
        if self._most and self._now >= self._most:
            raise RateLimited(f"Key '{self.name}' already has {self._most} requests running (max_concurrent)")
        tokens = requirements.estimated_tokens
        wait = max(self._requests.seconds_short(1), self._tokens.seconds_short(tokens))
        if wait > 0:
            raise RateLimited(f"Key '{self.name}' is over its rate limit", retry_after=int(wait) + 1)
        self._requests.take(1)
        self._tokens.take(tokens)
        self._now += 1

    def check_uncounted(self) -> None:
        """Raises ``Forbidden`` for a key with a limit of tokens, where nobody looks into requests to count them."""
        if self._tokens.limit:
            raise Forbidden(
                f"Key '{self.name}' has a limit of tokens (tokens_per_minute), and nobody counts what goes to an "
                "engine as it comes: use the paths under /v1, or a key without that limit"
            )

    def leave(self) -> None:
        """Count a request out."""
        self._now -= 1


class Keyring:
    """All keys. Without any, everybody may do everything."""

    def __init__(self, keys: Sequence[Key], clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._holders: dict[bytes, KeyHolder] = {}
        self.become(keys)

    def become(self, keys: Sequence[Key]) -> None:
        """Know exactly ``keys`` from now on; one of the same name as before goes on counting, whatever its secret."""
        known = {holder.name: holder for holder in self._holders.values()}
        self._holders = {}
        for key in keys:
            if (holder := known.get(key.name)) is None:
                holder = KeyHolder(key, self._clock)
            else:
                holder.become(key)
            self._holders[_digest(key.key.encode())] = holder

    def caller(self, headers: Headers) -> KeyHolder | None:
        """Who shows a key in ``Authorization: Bearer`` or ``x-api-key``; ``None`` where no keys are set.

        Raises ``Unauthorized``.
        """
        if not self._holders:
            return None
        shown = _shown(headers)
        holder = self._holders.get(_digest(shown)) if shown else None
        if holder is None:
            problem = "Unknown API key" if shown else "No API key: send it as 'Authorization: Bearer KEY'"
            raise Unauthorized(problem)
        return holder

    def check_admin(self, headers: Headers) -> None:
        """Raises ``Unauthorized`` or ``Forbidden`` unless the caller may use ``/api``."""
        holder = self.caller(headers)
        if holder is not None and not holder.admin:
            raise Forbidden(f"Key '{holder.name}' is no admin key")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _shown(headers: Headers) -> bytes:
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return value[7:].strip()
        if name in (b"x-api-key", b"api-key"):
            return value.strip()
    return b""
