"""Authenticators: find out who sends a request."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import msgspec

from enginehouse.config.auth import LimitAmounts
from enginehouse.domain.request import Headers
from enginehouse.interfaces.services import Configured


class Caller(msgspec.Struct, frozen=True):
    """Whoever shows a credential.

    - ``name``: who that is in records, usage and limits. It stands there behind the authenticator's type, as in
      ``header/ann``, so it is never the name of a key.
    - ``models``: that it may use; ``*`` and ``?`` match as in a shell.
    - ``admin``: whether it may use operators' pages.
    - ``priority``: of its requests in a queue. ``weight``: its share of engines under the scheduler ``fair``.
    - ``limits``: of all that has this ``name``; ``None`` for none.
    - ``until``: when the credential expires, in seconds since the Unix epoch.
    """

    name: str
    models: tuple[str, ...] = ("*",)
    admin: bool = False
    priority: int = 0
    weight: float = 1.0
    limits: LimitAmounts | None = None
    until: float = math.inf


class Authenticator(ABC):
    """Knows callers by what their requests show, besides the keys of the configuration.

    While one is active, every request needs a credential. What an authenticator raises refuses the request.
    """

    def prepare(self, configured: Configured) -> bool:
        """Take a configuration: at start, and again whenever another one is in force. Return whether it is active.

        Called for configurations that may follow, too, on other instances. Raise ``ConfigError`` for one that is wrong.
        """
        return True

    @abstractmethod
    def caller(self, head: Headers) -> Caller | None:
        """Return who sends a request with this ``head``; ``None`` if it shows nothing that this authenticator knows.

        Raise ``Unauthorized`` for a credential that it knows but that is not valid. Runs on the event loop, for each
        request that shows no key: it must not wait.
        """

    def has_operators(self) -> bool:
        """Return whether some of its callers may use operators' pages now."""
        return False

    def limits_of(self, name: str) -> LimitAmounts | None:
        """Return the limits of a caller of this ``name``, who has used something before the gateway started."""
        return None

    async def refresh(self) -> None:
        """Called every second, in each process: fetch what ``caller`` needs. Requests do not wait for it."""
