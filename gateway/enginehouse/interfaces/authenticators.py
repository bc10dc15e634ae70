"""Authenticators: find out who sends a request."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Protocol

import msgspec

from enginehouse.config.auth import LimitAmounts
from enginehouse.domain.errors import Forbidden
from enginehouse.domain.request import Headers
from enginehouse.domain.requirements import Requirements
from enginehouse.domain.tokens import Tokens
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
    weight: Annotated[float, msgspec.Meta(ge=0.001, le=1000)] = 1.0
    limits: LimitAmounts | None = None
    until: float = math.inf


class Reserved(Protocol):
    """What a running request has reserved of limits.

    ``lines``: the header lines that tell the client of its limits, each ending in CRLF.
    """

    lines: bytes

    def settle(self, prompt: int, answer: tuple[int, int, Tokens | None], model: str) -> None:
        """Count the request out.

        ``prompt``: its estimated tokens. ``answer``: its bytes, its events and, if the engine counted them, its tokens.
        ``model``: the one that served it; empty if none did.
        """


class AdmittedCaller:
    """The sender of a request, as far as rights and limits go. This one has no limits.

    - ``name``: in records, usage and limits, as it is.
    - ``models``: patterns of those that it may use. ``scoped``: it may use only some.
    - ``admin``: whether it may use operators' pages.
    - ``priority``: of its requests in a queue: higher first. ``weight``: its share of engines, relative to others.
    - ``ttft_objective``: the seconds that its requests may wait; 0 for no limit.
    - ``gateway``: it is another gateway, whose requests say whose they are. ``through``: the name of the gateway that
      sent for this caller; empty for none.
    - ``aside``: its requests leave the prefix caches of engines to others.
    """

    def __init__(
        self,
        name: str,
        models: Sequence[str] = ("*",),
        *,
        admin: bool = False,
        priority: int = 0,
        weight: float = 1.0,
        ttft_objective: float = 0.0,
        gateway: bool = False,
    ) -> None:
        self.name = name
        self.models = tuple(models)
        self.scoped = "*" not in models
        self.admin = admin
        self.priority = priority
        self.weight = weight
        self.ttft_objective = ttft_objective
        self.gateway = gateway
        self.through = ""
        self.aside = False

    def may_use(self, model: str) -> bool:
        """Whether ``models`` include ``model``."""
        return not self.scoped or any(fnmatchcase(model, pattern) for pattern in self.models)

    def admit(self, requirements: Requirements, answer_limit: int | None) -> Reserved | None:
        """Count a request in. Raises ``Forbidden``, or ``RateLimited`` if the caller may not make it now.

        Returns ``None`` if the caller has no limits. ``answer_limit``: the most tokens of its answer, if it says so.
        """
        if not self.may_use(requirements.model):
            raise Forbidden(f"Key '{self.name}' may not use model '{requirements.model}'", param="model")
        return None

    def check_uncounted(self) -> None:
        """Raise ``Forbidden`` for a caller with a limit that needs tokens: this request's cannot be counted."""

    def on_behalf(self, name: str, priority: int) -> AdmittedCaller:
        """Whoever sent the request to the gateway that this caller is. Its limits are this one's."""
        caller = AdmittedCaller(
            name, self.models, priority=priority, weight=self.weight, ttft_objective=self.ttft_objective
        )
        caller.through = self.name
        return caller


class Authenticator(ABC):
    """Knows callers by what their requests show. The keys of ``[[auth.keys]]`` are the bundled one ``key``.

    While one is active, every request needs a credential. What an authenticator raises refuses the request.
    ``on_change`` is set by the gateway, for ``changed``.
    """

    on_change: Callable[[], None] | None = None

    def prepare(self, configured: Configured) -> bool:
        """Take a configuration: at start, and again whenever another one is in force. Return whether it is active.

        Called for configurations that may follow, too, on other instances. Raise ``ConfigError`` for one that is wrong.
        """
        return True

    def is_open(self) -> bool:
        """Return whether requests need no credential of this authenticator now, as it has given none to anyone.

        Asked at start, for each configuration, once a second, and after ``changed``; for each request while it fails.
        """
        return False

    def changed(self) -> None:
        """Have all processes of the gateway ask ``is_open`` again, before their next request."""
        if self.on_change is not None:
            self.on_change()

    @abstractmethod
    def caller(self, head: Headers) -> Caller | AdmittedCaller | None:
        """Return who sends a request with this ``head``; ``None`` if it shows nothing that this authenticator knows.

        The names in ``head`` are in lower case. Raise ``Unauthorized`` for a credential that it knows but that is not
        valid. Runs on the event loop, for each request that shows no key: it must not wait. The name of an
        ``AdmittedCaller`` stands as it is, and it counts its requests itself.
        """

    def named(self, name: str) -> AdmittedCaller | None:
        """Return the caller of this ``name``, who shows no credential; ``None`` if there is none, or not any more.

        Only for names that stand as they are, those of an ``AdmittedCaller``.
        """
        return None

    def has_operators(self) -> bool:
        """Return whether some of its callers may use operators' pages now."""
        return False

    def limits_of(self, name: str) -> LimitAmounts | None:
        """Return the limits of a caller of this ``name``, who has used something before the gateway started."""
        return None

    async def refresh(self) -> None:
        """Called every second, in each process: fetch what ``caller`` needs. Requests do not wait for it."""
