"""Finds out who sends a request, by asking authenticators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from time import time
from typing import Final, NamedTuple

from enginehouse.config.auth import LimitAmounts
from enginehouse.domain.client_names import kept_name
from enginehouse.domain.errors import Forbidden, Overloaded, RequestError, Unauthorized
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.request import Headers
from enginehouse.interfaces.accounting import Accounting
from enginehouse.interfaces.authenticators import AdmittedCaller, Authenticator, Caller
from enginehouse.relay.heads.behalf import read_behalf
from enginehouse.telemetry.plugin_failures import plugin_failed, wrong_result

_MOST_CALLERS: Final = 10_000
_LONGEST: Final = 512
"""Characters of a name, whose parts an authenticator has shortened itself."""


class ActiveAuthenticator(NamedTuple):
    """One that may know callers."""

    plugin: PluginId
    authenticator: Authenticator


class Authentication:
    """Asks the active authenticators in their order. Without any, or while all are open, everyone may do everything.

    ``accounting`` counts the requests of callers with limits. ``epoch`` tells the time of day.
    """

    def __init__(self, accounting: Accounting, epoch: Callable[[], float] = time) -> None:
        self._accounting = accounting
        self._epoch = epoch
        self._active: Sequence[ActiveAuthenticator] = ()
        self._checks: list[Callable[[], bool]] = []
        self._known: dict[tuple[str, Caller], AdmittedCaller] = {}

    def use(self, active: Sequence[ActiveAuthenticator]) -> None:
        """Ask these from now on."""
        self._active = active
        self._checks = [each.authenticator.is_open for each in active]  # each request asks
        self._known.clear()

    @property
    def is_open(self) -> bool:
        """Whether requests need no credential."""
        place = 0
        try:
            for is_open in self._checks:
                if not is_open():
                    return False
                place += 1
        except RequestError:
            raise
        except BaseException as error:
            raise plugin_failed(self._active[place].plugin, error) from error
        return True

    @property
    def has_operators(self) -> bool:
        """Whether anyone may use operators' pages now."""
        return self.is_open or any(each.authenticator.has_operators() for each in self._active)

    def caller(self, headers: Headers) -> AdmittedCaller | None:
        """Whoever sends a request with these ``headers``; ``None`` if it needs no credential.

        If it shows several, one that is right is enough. Raises ``Unauthorized``, or ``Overloaded`` while credentials
        cannot be checked.
        """
        if self.is_open:
            return None
        problem: RequestError | None = None
        for plugin, authenticator in self._active:
            try:
                found = authenticator.caller(headers)
                if found is None:
                    continue
                if not isinstance(found, AdmittedCaller):
                    self._check_expiry(found)
            except RequestError as error:
                if not isinstance(problem, Overloaded):
                    problem = error
                continue
            except BaseException as error:
                raise plugin_failed(plugin, error) from error
            admitted = found if isinstance(found, AdmittedCaller) else self._admitted(plugin, found)
            if not admitted.gateway:
                return admitted
            behalf = read_behalf(headers)
            return admitted if behalf is None else admitted.on_behalf(behalf.caller, behalf.priority)
        raise problem or Unauthorized("No API key: send it as 'Authorization: Bearer KEY'")

    def admin(self, headers: Headers) -> AdmittedCaller | None:
        """As ``caller``. Also raises ``Forbidden`` unless the caller is an operator."""
        caller = self.caller(headers)
        if caller is not None and not caller.admin:
            raise Forbidden(f"Key '{caller.name}' is not an admin key")
        return caller

    def named(self, name: str, models: Sequence[str] = ("*",)) -> AdmittedCaller | None:
        """The caller called ``name``, who shows no credential now; ``None`` if no active authenticator has such a name.

        ``models``: those that the credential permitted, where rights belong to credentials.
        """
        for plugin, authenticator in self._active:
            if (known := authenticator.named(name)) is not None:
                return known
            space = f"{plugin.type}/"
            if name.startswith(space):
                own = name.removeprefix(space)
                return self._admitted(plugin, Caller(own, tuple(models), limits=authenticator.limits_of(own)))
        return None

    def absent(self, name: str, models: Sequence[str], through: str = "") -> AdmittedCaller:
        """As ``named``. ``through``: the key of the gateway that sent for them; empty for none.

        Raises ``Forbidden`` if the key is gone.
        """
        key = through or name
        found = self.named(key, models)
        if found is None:
            raise Forbidden(f"Key '{key}' does not exist any more, or has expired")
        return found.on_behalf(name, found.priority) if through else found

    def limits_of(self, name: str) -> LimitAmounts | None:
        """The limits of the caller of that name, as an authenticator knows them."""
        for plugin, authenticator in self._active:
            space = f"{plugin.type}/"
            if name.startswith(space):
                return authenticator.limits_of(name.removeprefix(space))
        return None

    def _check_expiry(self, found: Caller) -> None:
        if isinstance(found, Caller) and found.until != math.inf and self._epoch() >= found.until:
            raise Unauthorized("The credential has expired")

    def _admitted(self, plugin: PluginId, found: Caller) -> AdmittedCaller:
        if not isinstance(found, Caller):
            raise wrong_result(plugin, f"returned an object of type {type(found).__name__} from caller")
        known = self._known.get((plugin.type, found))
        if known is None:
            name = f"{plugin.type}/{found.name if len(found.name) <= _LONGEST else kept_name(found.name)}"
            if len(self._known) >= _MOST_CALLERS:
                self._known.clear()
            known = self._known[plugin.type, found] = self._accounting.counted(name, found)
        return known
