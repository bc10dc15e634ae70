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
from enginehouse.telemetry.observers import Callbacks, Observers, notify
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
    """The authenticators of one process, made and prepared for ``config``, and the one of them that counts requests.

    Begins with ``count``, ``open`` and ``start``. Raises ``ConfigError`` or ``PluginError``. One that cannot be made is
    never left out: that would let everyone in.
    """

    def __init__(self, config: Config, registry: Registry, clock: Clock, shared: SharedAccounts | None = None) -> None:
        self._registry = registry
        self._on_operated: Callbacks = ()
        self._tasks = BackgroundTasks()
        self._folder: Path | None = None
        made = [
            ActiveAuthenticator(
                identity(registry, "authenticator", type), create(config, registry, "authenticator", type)
            )
            for type in registry.types("authenticator")
        ]
        self._made = made = sorted(made, key=lambda each: not isinstance(each.authenticator, Accounting))
        self._counted_by, self.accounting = _accounting(made)
        self.authentication = Authentication(self.accounting, clock.epoch, shared and shared.changes)
        self._process = _CountedProcess(clock, registry, shared)
        self.accounting.join(self._process)
        configured = ConfiguredPlugins(lambda: config, registry)
        self.authentication.use([each for each in made if self._prepare(each, configured)])

    def count(self, context: RelayContext, observers: Observers) -> None:
        """Count the requests of ``context``, and tell ``observers`` of the acts of operators."""
        context.counted_by = self._counted_by
        self._process.use(context, self.authentication)
        self._on_operated = observers.callbacks("operated")

    def configure(self, config: Config) -> None:
        """Use another configuration. An authenticator that fails stays active: nobody gets in for that."""
        active, configured = [], ConfiguredPlugins(lambda: config, self._registry)
        for each in self._made:
            try:
                is_active = self._prepare(each, configured)
            except EnginehouseError as error:
                is_active = True
                _log.error("%s", error)
            if is_active:
                active.append(each)
        self.authentication.use(active)

    def _prepare(self, each: ActiveAuthenticator, configured: Configured) -> bool:
        """Whether it is active; only ``False`` says that it is not. Raises ``ConfigError`` or ``PluginError``."""
        how = partial(each.authenticator.prepare, configured)
        return prepare(self._registry, "authenticator", each.plugin.type, how) is not False

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
    """The ``CountedGateway`` of one process. Before ``use``, it knows nobody and counts nothing.

    So callers who only check a configuration leave no cycle.
    """

    def __init__(self, clock: Clock, registry: Registry, shared: SharedAccounts | None) -> None:
        self.clock = clock
        self.authenticators = registry.types("authenticator")
        self.memory: Any = None if shared is None else shared.memory
        self.process = 0 if shared is None else shared.process
        self._authentication = Authentication(Accounting())
        self._context: RelayContext | None = None
        self._counting: tuple[RequestMeter | None, ClientAddresses | None, bool] = None, None, False

    def use(self, context: RelayContext, authentication: Authentication) -> None:
        """Count the requests of ``context``, whose senders ``authentication`` knows."""
        self._authentication, self._context = authentication, context
        context.usage, context.addresses, context.asks_usage = self._counting

    def is_open(self) -> bool:
        return self._authentication.is_open

    def has_operators(self) -> bool:
        return self._authentication.has_operators

    def limits_of(self, name: str) -> LimitAmounts | None:
        return self._authentication.limits_of(name)

    def count(self, meter: RequestMeter | None, addresses: ClientAddresses | None, *, ask_streams: bool) -> None:
        self._counting = meter, addresses, ask_streams
        if self._context is not None:
            self.use(self._context, self._authentication)


def share_accounts(registry: Registry, processes: int) -> Any:
    """What so many processes of a gateway share of its accounting. Call it before they are forked."""
    entry = accounting_type(registry)
    return None if entry is None else entry.factory.share(processes)


def _accounting(made: Sequence[ActiveAuthenticator]) -> tuple[PluginId, Accounting]:
    """The one that counts requests, and its plugin; one that counts none if there is none.

    Raises ``PluginError`` if there are several.
    """
    found = [(plugin, each) for plugin, each in made if isinstance(each, Accounting)]
    if len(found) > 1:
        names = " and ".join(str(plugin) for plugin, _ in found)
        raise PluginError(f"{names} both count requests: disable the plugin of one of them")
    return found[0] if found else (PluginId("authenticator", ""), Accounting())
