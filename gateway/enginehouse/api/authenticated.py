"""Callers whom authenticators of plugins know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from enginehouse.api.callers import Account, CallerLimits, KeyHolder
from enginehouse.config.auth import KeySettings, LimitAmounts
from enginehouse.domain.client_names import kept_name
from enginehouse.domain.errors import RequestError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.request import Headers
from enginehouse.domain.usage import UsageRow
from enginehouse.interfaces.authenticators import Authenticator, Caller
from enginehouse.telemetry.plugin_failures import plugin_failed, wrong_result

_MOST_CALLERS: Final = 10_000
_LONGEST: Final = 512
"""Characters of a name, whose parts an authenticator has shortened itself."""


class ActiveAuthenticator(NamedTuple):
    """One that may know callers."""

    plugin: PluginId
    authenticator: Authenticator


class AuthenticatedCallers:
    """Asks the ``active`` authenticators in their order; the first that knows a caller decides."""

    def __init__(self, active: Sequence[ActiveAuthenticator], limits: CallerLimits) -> None:
        self._active = active
        self._limits = limits
        self._holders: dict[tuple[str, Caller], KeyHolder] = {}

    @property
    def has_operator(self) -> bool:
        """Whether one of them may use operators' pages now."""
        return any(each.authenticator.has_operators() for each in self._active)

    def find(self, head: Headers) -> tuple[KeyHolder, float] | None:
        """The caller, and when its credential expires; ``None`` if nobody knows it.

        Raises what an authenticator refuses it with, unless another one knows the caller.
        """
        problem: RequestError | None = None
        for plugin, authenticator in self._active:
            try:
                caller = authenticator.caller(head)
            except RequestError as error:
                problem = problem or error
                continue
            except BaseException as error:
                raise plugin_failed(plugin, error) from error
            if caller is not None:
                if not isinstance(caller, Caller):
                    raise wrong_result(plugin, f"returned an object of type {type(caller).__name__} from caller")
                return self._holder(plugin.type, caller), caller.until
        if problem is not None:
            raise problem
        return None

    def recall(self, name: str, rows: Iterable[UsageRow], now: float) -> None:
        """Count what a caller used before the gateway started."""
        for plugin, authenticator in self._active:
            space = f"{plugin.type}/"
            if name.startswith(space) and (limits := authenticator.limits_of(name.removeprefix(space))) is not None:
                self._account(name, limits).recall(rows, now)

    def named(self, name: str, models: Sequence[str]) -> KeyHolder | None:
        """The caller ``name`` with the right to use ``models``; ``None`` if no active authenticator has such names."""
        for plugin, authenticator in self._active:
            space = f"{plugin.type}/"
            if name.startswith(space):
                own = name.removeprefix(space)
                return self._holder(plugin.type, Caller(own, tuple(models), limits=authenticator.limits_of(own)))
        return None

    def _holder(self, space: str, caller: Caller) -> KeyHolder:
        known = self._holders.get((space, caller))
        if known is None:
            name = f"{space}/{caller.name if len(caller.name) <= _LONGEST else kept_name(caller.name)}"
            key = KeySettings(
                name=name,
                key="",
                models=list(caller.models),
                admin=caller.admin,
                priority=caller.priority,
                weight=caller.weight,
            )
            if len(self._holders) >= _MOST_CALLERS:
                self._holders.clear()
            known = self._holders[space, caller] = KeyHolder(key, self._account(name, caller.limits))
        return known

    def _account(self, name: str, limits: LimitAmounts | None) -> Account:
        account = Account(name, self._limits, f"Key '{name}'", passing=True)
        account.configure(limits or LimitAmounts())
        return account
