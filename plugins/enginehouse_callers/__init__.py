"""Counts what callers may use and have used."""

from __future__ import annotations

from enginehouse import LimitStore, Register, UsageStore, hookimpl
from enginehouse_callers.memory_limits import MemoryLimits
from enginehouse_callers.sqlite_usage import SqliteUsage

__all__ = ["MemoryLimits", "SqliteUsage"]


@hookimpl
def register_limit_stores(register: Register[LimitStore]) -> None:
    register("memory", MemoryLimits)


@hookimpl
def register_usage_stores(register: Register[UsageStore]) -> None:
    register("sqlite", SqliteUsage)
