"""Who sends requests, and what counts them: the authenticators that are installed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from enginehouse.aio.clock import Clock
from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.app.needs import accounting_type
from enginehouse.app.plugin_instances import ConfiguredPlugins, create, identity, prepare
from enginehouse.config.auth import LimitAmounts
from enginehouse.config.schema import Config
from enginehouse.domain.errors import ConfigError, EnginehouseError, PluginError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.usage import AuditEntry
from enginehouse.http.admission import ActiveAuthenticator, Authentication
from enginehouse.interfaces.accounting import Accounting, ClientAddresses, RequestMeter
from enginehouse.interfaces.services import Configured
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.context import RelayContext
from enginehouse.telemetry.observers import Observers, notify
from enginehouse.telemetry.plugin_failures import await_plugin, log_plugin_failure

_log = logging.getLogger(__name__)

_EVERY_S = 1.0
_KEYS = "key"
"""The type of the authenticator that knows ``[[auth.keys]]``."""
_KEPT = ("keys.json", "keys.required")
"""Files of the state folder without which nobody needs a key that was made at run time."""
Deliver = Callable[[bytes], None]
"""Takes what a process has counted that does not own the state folder."""


class SharedAccounts(NamedTuple):
    """What the processes of a gateway share of its accounting, and the number of this one.

    ``changes``: as for ``Authentication``.
    """

    memory: Any
    process: int
    changes: memoryview


class Callers:
    """The authenticators of one process, and the one of them that counts requests. Begins with ``open`` and ``start``.

    ``context``: of the requests to count. Raises ``ConfigError`` or ``PluginError``.
    """

    def __init__(
        self,
        config: Config,
        registry: Registry,
        context: RelayContext,
        observers: Observers,
        shared: SharedAccounts | None = None,
    ) -> None:
        self._registry = registry
        self._on_operated = observers.callbacks("operated")
        self._tasks = BackgroundTasks()
        self._folder: Path | None = None
        self._made = made = make_authenticators(config, registry)
        self._counted_by, accounting = _accounting(made) or (context.counted_by, Accounting())
        self.accounting, context.counted_by = accounting, self._counted_by
        self.authentication = Authentication(accounting, context.clock.epoch, shared and shared.changes)
        accounting.join(_CountedProcess(context, self.authentication, registry, shared))
        configured = ConfiguredPlugins(config, registry)
        self.authentication.use([each for each in made if prepare_authenticator(registry, each, configured)])

    def configure(self, config: Config) -> None:
        """Use another configuration. An authenticator that fails stays active: nobody gets in for that."""
        active, configured = [], ConfiguredPlugins(config, self._registry)
        for each in self._made:
            try:
                is_active = prepare_authenticator(self._registry, each, configured)
            except EnginehouseError as error:
                is_active = True
                _log.error("%s", error)
            if is_active:
                active.append(each)
        self.authentication.use(active)

    def open(self, folder: Path, deliver: Deliver | None = None) -> None:
        """Read what the state folder keeps. Raises ``ConfigError``."""
        self._folder = folder
        if _KEYS not in self._registry.types("authenticator") and any((folder / name).exists() for name in _KEPT):
            raise ConfigError(
                "keys were made at run time, and no enabled plugin knows them",
                file=str(folder),
                remedy=f"enable the plugin 'callers', or remove {' and '.join(_KEPT)} to let everyone in",
            )
        for each in self._made:  # not before: a gateway that is only built must leave no cycle
            each.authenticator.on_change = self.authentication.changed
        self.accounting.open(folder, deliver)
        self.authentication.ask_again()

    def warn_of_missing_operators(self) -> None:
        """Log it if nobody can use operators' pages."""
        try:
            if self.authentication.has_operators:
                return
        except Exception:  # an authenticator fails: it does so for each request too, and is reported then
            return
        _log.warning(
            "Nobody can use operators' pages: everyone needs a credential, and no operator has one (set a key with "
            "admin = true in auth.keys, or use an authenticator whose has_operators returns true)"
        )

    @property
    def folder(self) -> str:
        """The state folder; empty before ``open``."""
        return str(self._folder or "")

    async def start(self) -> None:
        """Begin to count, and have authenticators fetch what they need. Nothing waits for that."""
        await self.accounting.start()
        self._tasks.every(_EVERY_S, self.authentication.ask_again)
        for each in self._made:
            self._tasks.start(self._refreshing(each))

    async def close(self) -> None:
        self._tasks.cancel()
        await self.accounting.close()

    def note(self, entry: AuditEntry) -> None:
        """Keep an act of an operator, and tell observers."""
        try:
            self.accounting.note(entry)
        except BaseException as error:
            log_plugin_failure(self._counted_by, "failed to keep an act of an operator", error)
        if self._on_operated:
            notify(self._on_operated, entry)

    async def _refreshing(self, each: ActiveAuthenticator) -> None:
        while True:
            with suppress(EnginehouseError):  # the log has it
                await await_plugin(each.plugin, each.authenticator.refresh)
            await asyncio.sleep(_EVERY_S)


class _CountedProcess:
    """The ``CountedGateway`` of one process. Without a ``context``, it only checks a configuration."""

    def __init__(
        self,
        context: RelayContext | None,
        authentication: Authentication,
        registry: Registry,
        shared: SharedAccounts | None,
    ) -> None:
        self.clock = Clock() if context is None else context.clock
        self.authenticators = registry.types("authenticator")
        self.memory: Any = None if shared is None else shared.memory
        self.process = 0 if shared is None else shared.process
        self._context = context
        self._authentication = authentication

    def is_open(self) -> bool:
        return self._authentication.is_open

    def has_operators(self) -> bool:
        return self._authentication.has_operators

    def limits_of(self, name: str) -> LimitAmounts | None:
        return self._authentication.limits_of(name)

    def count(self, meter: RequestMeter | None, addresses: ClientAddresses | None, *, ask_streams: bool) -> None:
        if self._context is not None:
            self._context.usage, self._context.addresses = meter, addresses
            self._context.asks_usage = ask_streams


def check_callers(config: Config, registry: Registry) -> None:
    """Raise ``ConfigError`` or ``PluginError`` if the callers of ``config`` could not be known, or what they use."""
    made = make_authenticators(config, registry)
    accounting = _accounting(made)
    if accounting is not None:
        accounting[1].join(_CountedProcess(None, Authentication(Accounting()), registry, None))
    for each in made:
        prepare_authenticator(registry, each, ConfiguredPlugins(config, registry))


def share_accounts(registry: Registry, processes: int) -> Any:
    """What so many processes of a gateway share of its accounting. Call it before they are forked."""
    entry = accounting_type(registry)
    return None if entry is None else entry.factory.share(processes)


def make_authenticators(config: Config, registry: Registry) -> list[ActiveAuthenticator]:
    """All that are installed, the one that counts requests first. Raises ``ConfigError`` or ``PluginError``.

    One that cannot be made is never left out: that would let everyone in.
    """
    made = [
        ActiveAuthenticator(identity(registry, "authenticator", type), create(config, registry, "authenticator", type))
        for type in registry.types("authenticator")
    ]
    return sorted(made, key=lambda each: not isinstance(each.authenticator, Accounting))


def prepare_authenticator(registry: Registry, each: ActiveAuthenticator, configured: Configured) -> bool:
    """Whether it is active; only ``False`` says that it is not. Raises ``ConfigError`` or ``PluginError``."""
    how = partial(each.authenticator.prepare, configured)
    return prepare(registry, "authenticator", each.plugin.type, how) is not False


def _accounting(made: Sequence[ActiveAuthenticator]) -> tuple[PluginId, Accounting] | None:
    """The one that counts requests, and its plugin. Raises ``PluginError`` if there are several."""
    found = [(plugin, each) for plugin, each in made if isinstance(each, Accounting)]
    if len(found) > 1:
        names = " and ".join(str(plugin) for plugin, _ in found)
        raise PluginError(f"{names} both count requests: disable the plugin of one of them")
    return found[0] if found else None
