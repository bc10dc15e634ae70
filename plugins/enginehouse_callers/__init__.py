"""Who calls, and what callers may use and have used.

::

    token_authenticator, provider_keys   tokens of an identity provider
    memory_limits                        what they may use
    sqlite_usage                         what they have used
"""

from __future__ import annotations

from enginehouse import Authenticator, LimitStore, Register, UsageStore, hookimpl
from enginehouse_callers.memory_limits import MemoryLimits
from enginehouse_callers.sqlite_usage import SqliteUsage
from enginehouse_callers.token_authenticator import TokenAuthenticator

__all__ = ["MemoryLimits", "SqliteUsage", "TokenAuthenticator"]


@hookimpl
def register_limit_stores(register: Register[LimitStore]) -> None:
    register("memory", MemoryLimits)


@hookimpl
def register_usage_stores(register: Register[UsageStore]) -> None:
    register("sqlite", SqliteUsage)


@hookimpl
def register_authenticators(register: Register[Authenticator]) -> None:
    register("jwt", TokenAuthenticator)
