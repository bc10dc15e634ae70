"""Everything about callers: their keys and tokens, their limits, what they use, and what operators do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from starlette.routing import BaseRoute

from enginehouse.aio.tasks import BackgroundTasks
from enginehouse.api.address_limits import AddressLimits
from enginehouse.api.authenticated import ActiveAuthenticator, AuthenticatedCallers
from enginehouse.api.callers import CallerLimits, month_of
from enginehouse.api.kept_keys import KeptKeys
from enginehouse.api.keys import Keyring
from enginehouse.api.pages.key_pages import KeyPages
from enginehouse.app.plugin_instances import ConfiguredPlugins, create, identity, prepare
from enginehouse.app.usage_keeper import UsageKeeper
from enginehouse.config.schema import Config, LimitSettings
from enginehouse.config.usage import Prices
from enginehouse.domain.errors import ConfigError, EnginehouseError
from enginehouse.domain.plugin_id import PluginId
from enginehouse.domain.usage import AuditEntry, UsageRow
from enginehouse.interfaces.authenticators import Authenticator
from enginehouse.interfaces.limit_stores import Limit, LimitRule, LimitStore
from enginehouse.interfaces.services import Configured
from enginehouse.interfaces.usage_stores import UsageStore
from enginehouse.plugin_manager.registry import Registry
from enginehouse.relay.context import RelayContext
from enginehouse.telemetry.observers import Observers, notify
from enginehouse.telemetry.plugin_failures import await_plugin
from enginehouse.telemetry.usage_meter import UsageMeter

_log = logging.getLogger(__name__)

_EVERY_S = 1.0
_SAVE_USE_EVERY = 60
_NO_STORE, _USUAL_STORE = "none", "sqlite"
Deliver = Callable[[list[UsageRow], list[str]], None]
"""Takes what callers have used, and the keys made at run time that have come."""


class Callers:
    """Begins with ``open``, which reads the state folder, and ``start``.

    ``context``: of the requests to count. ``limits``: in place of the configured store.
    """

    def __init__(
        self,
        config: Config,
        registry: Registry,
        context: RelayContext,
        observers: Observers,
        limits: LimitStore | None = None,
    ) -> None:
        self._config = config
        self._registry = registry
        self._context = context
        self._clock = clock = context.clock
        self._on_operated = observers.callbacks("operated")
        self.store = limits or self._limit_store()
        counting = CallerLimits(self.store, Prices(config.prices))
        self.keyring = Keyring(config.auth.keys, counting, clock.epoch)
        self._kept = KeptKeys(counting, lambda: [key.name for key in self._config.auth.keys], clock.epoch)
        self.keeper = UsageKeeper(UsageMeter(clock.epoch, counting.prices), config.usage.keep, clock.epoch)
        self._configured = ConfiguredPlugins(config, registry)
        self._authenticators = make_authenticators(config, registry)
        self._kept.spaces += tuple(f"{type}/" for type in registry.types("authenticator") if type != "jwt")
        self._folder: Path | None = None
        self._tasks = BackgroundTasks()
        self._written = 0
        self._had_operator = True
        self._deliver: Deliver | None = None
        self.keyring.recognisers = [self._kept]
        self._use_authenticators()
        self._addresses = AddressLimits(config.server, counting)
        if config.usage.store not in ("", _NO_STORE):
            registry.get("usage_store", config.usage.store, "usage.store")

    def _use_authenticators(self) -> None:
        """Ask those that are active with the configuration in force. One that fails is: nobody gets in for that."""
        active: list[ActiveAuthenticator] = []
        for each in self._authenticators:
            try:
                is_active = prepare_authenticator(self._registry, each, self._configured)
            except EnginehouseError as error:
                is_active = True
                _log.error("%s", error)
            if is_active:
                active.append(each)
        self.keyring.authenticated = AuthenticatedCallers(active, self.keyring.limits) if active else None

    def configure(self, config: Config) -> None:
        self._config, self._configured = config, ConfiguredPlugins(config, self._registry)
        self.keyring.configure(config.auth.keys)
        self.keyring.limits.prices = self.keeper.meter.prices = Prices(config.prices)
        self.keeper.keep = config.usage.keep
        self._addresses.configure(config.server)
        self._use_addresses()
        self._use_authenticators()

    def _use_addresses(self) -> None:
        """Count requests by their addresses, but only if addresses have limits: counting takes time."""
        self._context.addresses = self._addresses if self._config.server.per_address else None

    def open(self, folder: Path, deliver: Deliver | None = None) -> None:
        """Read the keys that were made at run time. Raises ``ConfigError``.

        ``deliver``: takes what is used, in a process that writes nothing itself.
        """
        self._folder, self._deliver = folder, deliver
        self._use_addresses()
        self._kept.open(folder)
        self._keep_usage()
        self._watch_operators()

    def share(self, key_changes: memoryview) -> None:
        """Let the other processes of the gateway see that keys were changed at run time."""
        self._kept.changes = key_changes

    @property
    def folder(self) -> str:
        """The state folder; empty before ``open``."""
        return str(self._folder or "")

    def take(self, rows: list[UsageRow], used: list[str]) -> None:
        """Take what another process delivers."""
        self.keeper.meter.put_back(rows)
        self._kept.note_used(used)

    async def start(self) -> None:
        """Begin to write what is used, and count what was used before against limits of this day and month."""
        await self.store.open()
        await self._recall()
        self._tasks.every(_EVERY_S, self._write)
        for plugin, authenticator in self._authenticators:
            self._tasks.start(self._refreshing(plugin, authenticator))

    async def close(self) -> None:
        self._tasks.cancel()
        self._hand_on()
        await self.keeper.close()
        await self.store.close()

    def note(self, entry: AuditEntry) -> None:
        """Keep an act of an operator, and tell observers."""
        self.keeper.note(entry)
        if self._on_operated:
            notify(self._on_operated, entry)

    def pages(self) -> Sequence[BaseRoute]:
        return KeyPages(self.keyring, self._kept, lambda: self._config.auth.keys).routes

    def _keep_usage(self) -> None:
        """Use the store that is configured; by default, there is one as soon as there are keys."""
        known = _USUAL_STORE in self._registry.types("usage_store") and not self.keyring.is_open
        type = self._config.usage.store or (_USUAL_STORE if known else _NO_STORE)
        if type == _NO_STORE or self.keeper.has_store or self._folder is None:
            return
        self._context.usage = self.keeper.meter
        self._context.asks_usage = self._config.usage.ask_streams
        if self._deliver is not None:
            return
        store: UsageStore = create(self._config, self._registry, "usage_store", type, "usage.store")
        prepare(self._registry, "usage_store", type, partial(store.prepare, self._folder))
        self.keeper.use(store)

    def _watch_operators(self) -> None:
        """Say so if the last key of an operator is revoked, lost or has expired: the gateway stays closed."""
        had, self._had_operator = self._had_operator, self.keyring.has_operator
        if had and not self._had_operator and self._kept.is_active and self._deliver is None:
            _log.error(
                "No key of an operator is valid: operators' pages are closed, and everyone needs a key. Set "
                "[[auth.keys]] with admin = true and reload. To give up all keys made at run time, stop the gateway, "
                "and remove keys.json and keys.required in %s",
                self._folder,
            )

    async def _write(self) -> None:
        self._written += 1
        try:
            self._keep_usage()
            self._watch_operators()
            self._hand_on()
            await self.keeper.write()
            if self._written % _SAVE_USE_EVERY == 0 and self._deliver is None:
                self._kept.save_use()
        except Exception:
            _log.exception("what callers use could not be kept")

    async def _refreshing(self, plugin: PluginId, authenticator: Authenticator) -> None:
        """Have an authenticator fetch what it needs every second. Nothing waits for it."""
        while True:
            with suppress(EnginehouseError):  # the log has it
                await await_plugin(plugin, authenticator.refresh)
            await asyncio.sleep(_EVERY_S)

    def _hand_on(self) -> None:
        if self._deliver is None:
            return
        rows, used = self.keeper.meter.take(), self._kept.take_used()
        if rows or used:
            self._deliver(rows, used)

    async def _recall(self) -> None:
        """Count what was used in this month so far, unless the limit store remembers it."""
        if not self.keeper.has_store or self.store.remembers:
            return
        now = self._clock.epoch()
        try:
            rows = await self.keeper.usage(month_of(now), now + 1, ("day", "key", "model", "user"))
        except Exception as error:
            _log.warning("Limits of this day and month start over, because the usage store cannot be read: %s", error)
            return
        by_name: dict[str, list[UsageRow]] = {}
        for row in rows:
            by_name.setdefault(row.key or "", []).append(row)
        for name, used in by_name.items():
            holder = self.keyring.named(name)
            if holder is not None:
                holder.account.recall(used, now)
            elif self.keyring.authenticated is not None:
                self.keyring.authenticated.recall(name, used, now)

    def _limit_store(self) -> LimitStore:
        """The store that counts what keys have used of their limits. It is not open yet."""
        settings, clock = self._config.limits, self._clock
        check_callers(self._config, self._registry)
        if settings.store not in self._registry.types("limit_store"):
            return NoLimits()
        store: LimitStore = create(self._config, self._registry, "limit_store", settings.store, "limits.store")
        how = partial(store.prepare, str(settings.url), clock.now, clock.epoch)
        prepare(self._registry, "limit_store", settings.store, how)
        return store


def check_callers(config: Config, registry: Registry) -> None:
    """Raise ``ConfigError`` or ``PluginError`` if the callers of ``config`` could not be known, or what they use."""
    if config.auth.keys or config.auth.jwt or config.server.per_address or config.limits != LimitSettings():
        registry.get("limit_store", config.limits.store, "limits.store")
    if config.auth.jwt is not None:
        registry.get("authenticator", "jwt", "auth.jwt")
    for each in make_authenticators(config, registry):
        prepare_authenticator(registry, each, ConfiguredPlugins(config, registry))
        space = f"{each.plugin.type}/"
        for key in config.auth.keys:
            if key.name.startswith(space):
                problem = f"'{key.name}' begins as names of callers whom the authenticator '{each.plugin.type}' knows"
                raise ConfigError(problem, key="auth.keys", remedy=f"choose a name that does not begin with '{space}'")


def make_authenticators(config: Config, registry: Registry) -> list[ActiveAuthenticator]:
    """All that are installed. One that cannot be made is never left out: that would let everyone in."""
    return [
        ActiveAuthenticator(identity(registry, "authenticator", type), create(config, registry, "authenticator", type))
        for type in registry.types("authenticator")
    ]


def prepare_authenticator(registry: Registry, each: ActiveAuthenticator, configured: Configured) -> bool:
    """Whether it is active; only ``False`` says that it is not. Raises ``ConfigError`` or ``PluginError``."""
    said: list[object] = []
    prepare(registry, "authenticator", each.plugin.type, lambda: said.append(each.authenticator.prepare(configured)))
    return said[0] is not False


class NoLimits(LimitStore):
    """Takes the place of a store where nobody has limits: a limit is refused rather than not counted."""

    def limit(self, name: str, rule: LimitRule) -> Limit:
        raise ConfigError(
            f"no limit store is installed, which '{name}' needs",
            key="limits.store",
            remedy="enable the plugin 'callers'",
        )
