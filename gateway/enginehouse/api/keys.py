"""Finds out who sends a request: by the keys of the configuration, or by others that recognise what a caller shows."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from time import time
from typing import Final, Protocol

from enginehouse.api.authenticated import AuthenticatedCallers
from enginehouse.api.callers import CallerLimits, KeyHolder, configured
from enginehouse.config.schema import KeySettings
from enginehouse.domain.errors import Forbidden, Overloaded, RequestError, Unauthorized
from enginehouse.domain.request import Headers
from enginehouse.relay.heads.behalf import Behalf, read_behalf

_BEARER: Final = b"bearer "
_MOST_SEEN: Final = 10_000
"""Headers that showed a key of the configuration: hashing them again takes longer than all other checks."""
_MOST_SHOWN: Final = 4
"""The most keys in one head that are tried."""


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

    ``limits`` counts what they use. ``recognisers`` are asked for what is no key of the configuration, and then those
    that are ``authenticated`` by plugins; ``None`` for nobody. ``epoch`` tells the time of day.
    """

    def __init__(self, keys: Sequence[KeySettings], limits: CallerLimits, epoch: Callable[[], float] = time) -> None:
        self.limits = limits
        self.recognisers: list[Recogniser] = []
        self.authenticated: AuthenticatedCallers | None = None
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
        if self._holders or self.authenticated is not None:
            return False
        for each in self.recognisers:  # noqa: SIM110 - each request asks, and a loop is faster than a generator
            if each.is_active:
                return False
        return True

    @property
    def has_operator(self) -> bool:
        """Whether anyone may use operators' pages now."""
        now = self._epoch()
        if any(holder.admin and now < holder.expires for holder in self._holders.values()):
            return True
        if self.authenticated is not None and self.authenticated.has_operator:
            return True
        return self.is_open or any(each.has_operator for each in self.recognisers)

    def caller(self, headers: Headers) -> KeyHolder | None:
        """The caller whose key is in ``Authorization: Bearer``, ``x-api-key`` or ``api-key``; ``None`` without keys.

        If there are several, one that is right is enough. Raises ``Unauthorized``, or ``Overloaded`` while keys cannot
        be read.
        """
        if self.is_open:
            return None
        holder = self._seen.get(_key_header(headers))
        if holder is None or holder.expires != math.inf:
            holder = self._first_right(headers)
        behalf = read_behalf(headers) if holder.gateway else None
        return holder if behalf is None else holder.on_behalf(behalf)

    def _first_right(self, headers: Headers) -> KeyHolder:
        """The caller of the first header that shows a valid key, or whom an authenticator knows.

        Raises the error of an authenticator, else that of the first header.
        """
        problem: RequestError | None = None
        for value in _key_headers(headers):
            try:
                holder = self._holder(value)
                if holder.expires != math.inf and self._epoch() >= holder.expires:
                    raise Unauthorized(f"Key '{holder.name}' has expired")
            except (Unauthorized, Overloaded) as error:  # noqa: PERF203 - each of a few keys may be wrong
                problem = problem or error
            else:
                return holder
        try:
            found = self.authenticated.find(headers) if self.authenticated is not None else None
        except Unauthorized as error:
            raise (problem if isinstance(problem, Overloaded) else error) from None
        if found is not None:
            holder, until = found
            if until != math.inf and self._epoch() >= until:
                raise Unauthorized("The credential has expired")
            return holder
        raise problem or Unauthorized("No API key: send it as 'Authorization: Bearer KEY'")

    def _holder(self, value: bytes) -> KeyHolder:
        """The caller who shows a header of this ``value``. Raises ``Unauthorized``."""
        shown = _bare(value)
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

    def named(self, name: str) -> KeyHolder | None:
        """The holder of the key called ``name``; ``None`` if there is no such key."""
        for holder in self._holders.values():
            if holder.name == name:
                return holder
        for each in self.recognisers:
            if (found := each.named(name)) is not None:
                return found
        return None

    def absent(self, name: str, models: Sequence[str], through: str = "") -> KeyHolder:
        """The caller ``name``, who shows no credential now; ``models``: those that it permitted.

        ``through``: the key of the gateway that sent for them; empty for none. Raises ``Forbidden`` if the key is gone.
        """
        key = through or name
        holder = self.named(key)
        if holder is None and self.authenticated is not None:
            holder = self.authenticated.named(key, models)
        if holder is None or self._epoch() >= holder.expires:
            raise Forbidden(f"Key '{key}' does not exist any more, or has expired")
        return holder.on_behalf(Behalf(name, holder.priority)) if through else holder

    def admin(self, headers: Headers) -> KeyHolder | None:
        """The caller, as ``caller``. Also raises ``Forbidden`` unless its key is an admin key."""
        holder = self.caller(headers)
        if holder is not None and not holder.admin:
            raise Forbidden(f"Key '{holder.name}' is not an admin key")
        return holder


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _key_header(headers: Headers) -> bytes:
    """The value of the header that shows a key, with ``Bearer `` if that is ``Authorization``; empty for none."""
    for name, value in headers:
        if name == b"authorization" and value[:7].lower() == _BEARER:
            return value
        if name == b"x-api-key" or name == b"api-key":
            return b"bearer " + value
    return b""


def _key_headers(headers: Headers) -> list[bytes]:
    """As ``_key_header``, of all headers that show one, up to a few: checking one may take long."""
    found = [_key_header([header]) for header in headers]
    return [value for value in found if _bare(value)][:_MOST_SHOWN]


def shown_credentials(head: Headers) -> list[bytes]:
    """What a request shows in ``Authorization: Bearer``, ``x-api-key`` and ``api-key``, for authenticators."""
    return [_bare(value) for value in _key_headers(head)]


def _bare(value: bytes) -> bytes:
    return value[7:].strip()
