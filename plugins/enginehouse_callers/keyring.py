"""Finds out whose key a request shows: one of the configuration, or one made at run time."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from time import time
from typing import Final

from enginehouse import Headers, RequestError
from enginehouse.callers import KeySettings
from enginehouse.errors import Overloaded, Unauthorized
from enginehouse_callers.accounts import CallerLimits, KeyHolder, configured
from enginehouse_callers.kept_keys import KeptKeys
from enginehouse_kit.credentials import bare, credential_header, credential_headers

_MOST_SEEN: Final = 10_000
"""Headers that showed a key of the configuration: hashing them again takes longer than all other checks."""


class Keyring:
    """All keys. Without any, every caller may do everything.

    ``limits`` counts what they use. ``kept``: those made at run time. ``epoch`` tells the time of day.
    """

    def __init__(self, keys: Sequence[KeySettings], limits: CallerLimits, epoch: Callable[[], float] = time) -> None:
        self.limits = limits
        self.kept: KeptKeys | None = None
        self._epoch = epoch
        self._holders: dict[bytes, KeyHolder] = {}
        self._seen: dict[bytes, KeyHolder] = {}
        self.configure(keys)

    def configure(self, keys: Sequence[KeySettings]) -> None:
        """Replace the keys. A key keeps its counts if its name stays, even with another secret."""
        known = {holder.name: holder for holder in self._holders.values()}
        self._seen.clear()
        self._holders = {_digest(key.key.encode()): configured(known.get(key.name), key, self.limits) for key in keys}

    def is_open(self) -> bool:
        """Learn of changes of other processes, and return whether no keys are set.

        Raises ``Overloaded`` if that is unknown.
        """
        if self.kept is not None:
            self.kept.follow()
        return not (self._holders or (self.kept is not None and self.kept.is_active))

    @property
    def has_operator(self) -> bool:
        """Whether the key of an operator is valid now."""
        now = self._epoch()
        if any(holder.admin and now < holder.expires for holder in self._holders.values()):
            return True
        return self.kept is not None and self.kept.has_operator

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
            if len(value) == len(b"bearer ") + len(shown):  # not with spaces around it, which may fill a whole head
                if len(self._seen) >= _MOST_SEEN:
                    self._seen.clear()
                self._seen[value] = holder
            return holder
        holder = self.kept.find(shown) if shown and self.kept is not None else None
        if holder is None:
            raise Unauthorized("Unknown API key")
        return holder

    @property
    def holders(self) -> Iterable[KeyHolder]:
        """The holders of all keys of the configuration."""
        return self._holders.values()

    def named(self, name: str) -> KeyHolder | None:
        """The holder of the key called ``name``; ``None`` if there is no such key."""
        for holder in self._holders.values():
            if holder.name == name:
                return holder
        return None if self.kept is None else self.kept.named(name)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
