"""Who calls, and what callers may use and have used.

::

    callers                              the authenticator ``key``, which counts the requests of all callers
    keyring, kept_keys, kept_key         keys of the configuration, and those made at run time
    key_rules                            what keys of the configuration must be like
    key_pages                            pages of keys
    token_authenticator                  tokens of an identity provider, and its public keys
    accounts, limit_set                  what a caller may use, and what its requests have reserved of that
    address_limits                       what client addresses may use
    memory_limits, shared_limits         counts of limits: of one process, and of several that share memory
    usage_meter, usage_keeper, prices    sums up what callers use and what it costs, and writes it
    sqlite_usage                         where it is written
    caller_metrics                       metrics of costs and limits
"""

from __future__ import annotations

from enginehouse import Authenticator, Register, hookimpl
from enginehouse_callers.callers import Callers
from enginehouse_callers.memory_limits import MemoryLimits
from enginehouse_callers.sqlite_usage import SqliteUsage
from enginehouse_callers.token_authenticator import TokenAuthenticator
from enginehouse_kit.limit_stores import LimitStore
from enginehouse_kit.usage_stores import UsageStore

__all__ = ["Callers", "MemoryLimits", "SqliteUsage", "TokenAuthenticator"]


@hookimpl
def register_limit_stores(register: Register[LimitStore]) -> None:
    register("memory", MemoryLimits)


@hookimpl
def register_usage_stores(register: Register[UsageStore]) -> None:
    register("sqlite", SqliteUsage)


@hookimpl
def register_authenticators(register: Register[Authenticator]) -> None:
    register("key", Callers)
    register("jwt", TokenAuthenticator)
