"""The authenticator ``key``: knows the keys of clients, and counts what all callers use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from enginehouse import Authenticator, Headers
from enginehouse.callers import (
    NAMESPACES,
    Accounting,
    AdmittedCaller,
    AuditEntry,
    Caller,
    CountedGateway,
    KeySettings,
    LimitAmounts,
    LimitLeft,
    TakenLimit,
    UsageRow,
)
from enginehouse.runtime import BackgroundTasks
from enginehouse.services import Configured, Measured
from enginehouse_callers.accounts import Account, CallerLimits, KeyHolder, month_of
from enginehouse_callers.address_limits import AddressLimits
from enginehouse_callers.caller_metrics import (
    COST,
    LIMIT,
    LIMIT_LEFT,
    LIMITED,
    LIMITS_ALONE,
    METRICS,
    key_of,
    limit_series,
)
from enginehouse_callers.kept_keys import KeptKeys
from enginehouse_callers.key_rules import check_keys
from enginehouse_callers.keyring import Keyring
from enginehouse_callers.prices import Prices
from enginehouse_callers.shared_limits import LimitMemory, SharedLimitStore
from enginehouse_callers.usage_keeper import UsageKeeper
from enginehouse_callers.usage_meter import UsageMeter
from enginehouse_kit.limit_stores import LimitStore

if TYPE_CHECKING:  # the command line starts without it
    from starlette.routing import BaseRoute

_log = logging.getLogger(__name__)

_EVERY_S = 1.0
_SAVE_USE_EVERY = 60
_LAST_USED_S = 30 * 86400.0
_NO_STORE, _USUAL_STORE = "none", "sqlite"
_IN_MEMORY = "memory"
"""The limit store of one gateway. Its processes count in memory that they share."""


class _Delivered(msgspec.Struct):
    """What a process has counted that writes nothing itself.

    ``used``: the keys made at run time that have come. ``refused``: as ``CallerLimits.refused``.
    """

    rows: list[UsageRow]
    used: list[str]
    refused: list[tuple[str, str, float]]


class Callers(Authenticator, Accounting):
    """Everything about callers: their keys, their limits, what they use, and what operators do.

    The first ``prepare`` makes its parts.
    """

    metrics = METRICS
    _gateway: CountedGateway
    _configured: Configured
    keyring: Keyring
    _kept: KeptKeys
    _addresses: AddressLimits
    keeper: UsageKeeper
    store: LimitStore

    def __init__(self) -> None:
        self._is_made = False
        self._names: list[str] = []
        self._folder: Path | None = None
        self._tasks = BackgroundTasks()
        self._written = 0
        self._had_operator = True
        self._deliver: Callable[[bytes], None] | None = None
        self._counts_usage = False

    @classmethod
    def share(cls, processes: int) -> LimitMemory:
        return LimitMemory(processes)

    def join(self, gateway: CountedGateway) -> None:
        self._gateway = gateway

    # --- the configuration

    def prepare(self, configured: Configured) -> bool:
        self._configured = configured
        keys = configured.table("auth").keys
        check_keys(keys, self._gateway.authenticators)
        self._names[:] = [key.name for key in keys]
        prices, server = Prices(configured.table("prices")), configured.table("server")
        usage = configured.table("usage")
        if not self._is_made:
            clock = self._gateway.clock
            self.store = self._limit_store()
            limits = CallerLimits(self.store, prices)
            self.keyring = Keyring(keys, limits, clock.epoch)
            self._kept = KeptKeys(limits, self._names.copy, clock.epoch)
            self._kept.spaces = (*NAMESPACES, *(space for space in self._spaces if space not in NAMESPACES))
            self.keyring.kept = self._kept
            self.keeper = UsageKeeper(UsageMeter(clock.epoch, prices), usage.keep, clock.epoch)
            self._addresses = AddressLimits(server, limits)
            if usage.store not in ("", _NO_STORE):
                configured.plugin("usage_store", usage.store, "usage.store")
            self._is_made = True
            return True
        self.keyring.configure(keys)
        self.keyring.limits.prices = self.keeper.meter.prices = prices
        self.keeper.keep = usage.keep
        self._addresses.configure(server)
        self._count()
        return True

    @property
    def _spaces(self) -> Sequence[str]:
        """How the names of other authenticators' callers begin."""
        return [f"{type}/" for type in self._gateway.authenticators]

    def _limit_store(self) -> LimitStore:
        """The store that counts what callers have used of their limits. It is not open yet."""
        settings, clock, memory = self._configured.table("limits"), self._gateway.clock, self._gateway.memory

        def prepare(store: LimitStore) -> None:
            store.prepare(str(settings.url), clock.now, clock.epoch)

        if memory is not None and settings.store == _IN_MEMORY:
            shared = SharedLimitStore(memory, self._gateway.process)
            prepare(shared)
            return shared
        store: LimitStore
        _, store = self._configured.plugin("limit_store", settings.store, "limits.store", prepare=prepare)
        return store

    # --- who sends a request

    def is_open(self) -> bool:
        return self.keyring.is_open()

    def caller(self, head: Headers) -> KeyHolder | None:
        return self.keyring.caller(head)

    def named(self, name: str) -> KeyHolder | None:
        holder = self.keyring.named(name)
        return None if holder is None or self._gateway.clock.epoch() >= holder.expires else holder

    def has_operators(self) -> bool:
        return self.keyring.has_operator

    def counted(self, name: str, caller: Caller) -> AdmittedCaller:
        key = KeySettings(
            name=name,
            key="",
            models=list(caller.models),
            admin=caller.admin,
            priority=caller.priority,
            weight=caller.weight,
        )
        return KeyHolder(key, self._account(name, caller.limits))

    def _account(self, name: str, limits: LimitAmounts | None) -> Account:
        account = Account(name, self.keyring.limits, f"Key '{name}'", passing=True)
        account.configure(limits or LimitAmounts())
        return account

    # --- work

    def open(self, folder: Path, deliver: Callable[[bytes], None] | None) -> None:
        self._folder, self._deliver = folder, deliver
        self._kept.changed = self.changed  # not before: a gateway that is only built must leave no cycle
        self._kept.open(folder)
        self._keep_usage()
        self._count()
        self._watch_operators()

    async def start(self) -> None:
        """Begin to write what is used, and count what was used before against limits of this day and month."""
        await self.store.open()
        await self._recall()
        self._tasks.every(_EVERY_S, self._write)

    async def close(self) -> None:
        self._tasks.cancel()
        self._hand_on()
        await self.keeper.close()
        await self.store.close()

    def receive(self, message: bytes) -> None:
        delivered = msgspec.msgpack.decode(message, type=_Delivered)
        self.keeper.meter.receive(delivered.rows)
        self._kept.note_used(delivered.used)
        for each in delivered.refused:
            self.keyring.limits.refused.add(*each)

    def process_died(self, process: int) -> None:
        if self._gateway.memory is not None:
            self._gateway.memory.clear(process)

    def taken(self) -> Mapping[str, TakenLimit]:
        return self.store.taken()

    def recall(self, taken: Mapping[str, TakenLimit]) -> None:
        self.store.recall(taken)

    def problem(self) -> str:
        return self.store.problem()

    def measure(self) -> Measured:
        holders = (*self.keyring.holders, *self._kept.holders)
        limits = limit_series((holder.name, left) for holder in holders for left in holder.account.left())
        refused = self.keyring.limits.refused
        return {
            COST: self.keeper.meter.costs,
            LIMIT: [(labels, each.amount) for labels, each in limits.items()],
            LIMIT_LEFT: [(labels, each.left) for labels, each in limits.items()],
            LIMITED: [((key_of(account), limit), count) for (account, limit), count in refused],
            LIMITS_ALONE: [((), bool(self.problem()))],
        }

    def routes(self) -> Sequence[BaseRoute]:
        from enginehouse_callers.key_pages import KeyPages

        keys = lambda: self._configured.table("auth").keys  # noqa: E731
        return KeyPages(self._kept, keys, self._gateway.is_open, self.limits_left, self._last_used).routes

    async def _last_used(self) -> Mapping[str, float]:
        """When each caller was last seen; before the start of the gateway, only the day is known, of the last 30."""
        now = self._gateway.clock.epoch()
        try:
            rows = await self.keeper.usage(now - _LAST_USED_S, now + 1, ("day", "key"))
        except Exception as error:
            _log.warning("The usage store cannot be read: %s", error)
            rows = ()
        days = {row.key or "": float(row.hour or 0) for row in sorted(rows, key=lambda row: row.hour or 0)}
        return days | self.keeper.meter.last_used

    def limits_left(self, name: str) -> Sequence[LimitLeft]:
        holder = self.keyring.named(name)
        if holder is not None:
            return [*holder.account.left()]
        limits = self._gateway.limits_of(name)
        return [] if limits is None else [*self._account(name, limits).left()]

    def cost(self, model: str, tokens_in: float, tokens_cached: float, tokens_out: float) -> float:
        return self.keyring.limits.cost(model, tokens_in, tokens_cached, tokens_out)

    def used(self, rows: Sequence[UsageRow]) -> None:
        self.keeper.add(rows)

    def note(self, entry: AuditEntry) -> None:
        self.keeper.note(entry)

    async def audit(self, since: float, most: int) -> Sequence[AuditEntry]:
        return await self.keeper.audit(since, most)

    async def usage(
        self,
        since: float,
        until: float,
        by: Sequence[str] = ("hour", "key", "model", "user"),
        key: str | None = None,
        most: int | None = None,
    ) -> Sequence[UsageRow]:
        return await self.keeper.usage(since, until, by, key, most)

    def _count(self) -> None:
        """Count requests by their addresses, but only if addresses have limits: counting takes time."""
        if self._folder is not None:
            self._gateway.count(
                self.keeper.meter if self._counts_usage else None,
                self._addresses if self._configured.table("server").per_address else None,
                ask_streams=self._counts_usage and self._configured.table("usage").ask_streams,
            )

    def _keep_usage(self) -> None:
        """Use the store that is configured; by default, there is one as soon as there are keys."""
        type = self._configured.table("usage").store or (_NO_STORE if self._gateway.is_open() else _USUAL_STORE)
        if type == _NO_STORE or self._counts_usage or self._folder is None:
            return
        folder, self._counts_usage = self._folder, True
        if self._deliver is None:
            plugin, store = self._configured.plugin(
                "usage_store", type, "usage.store", prepare=lambda store: store.prepare(folder)
            )
            self.keeper.use(store, plugin)
        self._count()

    def _watch_operators(self) -> None:
        """Say so if the last key of an operator is revoked, lost or has expired: the gateway stays closed."""
        had, self._had_operator = self._had_operator, self._gateway.has_operators()
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
                await self._kept.save_use()
        except Exception:
            _log.exception("what callers use could not be kept")

    def _hand_on(self) -> None:
        if self._deliver is None:
            return
        counted = _Delivered(self.keeper.meter.take(), self._kept.take_used(), self.keyring.limits.refused.take())
        if counted.rows or counted.used or counted.refused:
            self._deliver(msgspec.msgpack.encode(counted))

    async def _recall(self) -> None:
        """Count what was used in this month so far, unless the limit store remembers it."""
        if not self.keeper.has_store or self.store.remembers:
            return
        now = self._gateway.clock.epoch()
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
            elif (limits := self._gateway.limits_of(name)) is not None:
                self._account(name, limits).recall(used, now)
