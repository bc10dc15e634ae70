"""Finds out whose key a request shows: one of the configuration, or one that others recognise."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from time import time
from typing import Final, Protocol

from enginehouse import Headers, RequestError
from enginehouse.callers import KeySettings
from enginehouse.errors import Overloaded, Unauthorized
from enginehouse_callers.accounts import CallerLimits, KeyHolder, configured
from enginehouse_kit.credentials import bare, credential_header, credential_headers

_MOST_SEEN: Final = 10_000
"""Headers that showed a key of the configuration: hashing them again takes longer than all other checks."""


class Recogniser(Protocol):
    """Recognises callers besides those of the configuration's keys."""

    @property
    def is_active(self) -> bool:
        """Whether there may be any. If nobody is recognised, and no keys are set, everyone may do everything."""

    @property
    def has_operator(self) -> bool:
        """Whether one of them may use operators' pages now."""

    def find(self, shown: bytes) -> KeyHolder | None:
        """The caller who shows this; ``None`` for anything unknown. Raises ``Unauthorized`` for what is not valid."""

    def named(self, name: str) -> KeyHolder | None:
        """The caller of that name."""


class Keyring:
    """All keys. Without any, every caller may do everything.

    ``limits`` counts what they use. ``recognisers`` are asked for what is no key of the configuration. ``epoch`` tells
    the time of day.
    """

    def __init__(self, keys: Sequence[KeySettings], limits: CallerLimits, epoch: Callable[[], float] = time) -> None:
        self.limits = limits
        self.recognisers: list[Recogniser] = []
        self._epoch = epoch
        self._holders: dict[bytes, KeyHolder] = {}
        self._seen: dict[bytes, KeyHolder] = {}
        self.configure(keys)

    def configure(self, keys: Sequence[KeySettings]) -> None:
        """Replace the keys. A key keeps its counts if its name stays, even with another secret."""
        known = {holder.name: holder for holder in self._holders.values()}
        self._seen.clear()
        self._holders = {_digest(key.key.encode()): configured(known.get(key.name), key, self.limits) for key in keys}

    @property
    def is_open(self) -> bool:
        """Whether no keys are set."""
        if self._holders:
            return False
        for each in self.recognisers:  # noqa: SIM110 - each request asks, and a loop is faster than a generator
            if each.is_active:
                return False
        return True

    @property
    def has_operator(self) -> bool:
        """Whether the key of an operator is valid now."""
        now = self._epoch()
        if any(holder.admin and now < holder.expires for holder in self._holders.values()):
            return True
        return any(each.has_operator for each in self.recognisers)

    def caller(self, headers: Headers) -> KeyHolder | None:
        """The caller whose key is in ``Authorization: Bearer``, ``x-api-key`` or ``api-key``; ``None`` without keys.

        If there are several, one that is right is enough. Raises ``Unauthorized``, or ``Overloaded`` while keys cannot
        be read.
        """
        holder = self._seen.get(credential_header(headers))
        if holder is None or holder.expires != math.inf:
            holder = self._first_right(headers)
        return holder

    def _first_right(self, headers: Headers) -> KeyHolder | None:
        """The caller of the first header that shows a valid key; ``None`` if none shows any. Raises the first error."""
        problem: RequestError | None = None
        for value in credential_headers(headers):
            try:
                holder = self._holder(value)
                if holder.expires != math.inf and self._epoch() >= holder.expires:
                    raise Unauthorized(f"Key '{holder.name}' has expired")
            except (Unauthorized, Overloaded) as error:  # noqa: PERF203 - each of a few keys may be wrong
                problem = problem or error
            else:
                return holder
        if problem is not None:
            raise problem
        return None

    def _holder(self, value: bytes) -> KeyHolder:
        """The caller who shows a header of this ``value``. Raises ``Unauthorized``."""
        shown = bare(value)
        holder = self._holders.get(_digest(shown)) if shown else None
        if holder is not None:
            if len(self._seen) >= _MOST_SEEN:
                self._seen.clear()
            self._seen[value] = holder
            return holder
        holder = self._recognised(shown) if shown else None
        if holder is None:
            raise Unauthorized("Unknown API key")
        return holder

    def _recognised(self, shown: bytes) -> KeyHolder | None:
        for each in self.recognisers:
            if (holder := each.find(shown)) is not None:
                return holder
        return None

    @property
    def holders(self) -> Iterable[KeyHolder]:
        """The holders of all keys of the configuration."""
        return self._holders.values()

    def named(self, name: str) -> KeyHolder | None:
        """The holder of the key called ``name``; ``None`` if there is no such key."""
        for holder in self._holders.values():
            if holder.name == name:
                return holder
        for each in self.recognisers:
            if (found := each.named(name)) is not None:
                return found
        return None


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
