"""Counts what keys have used of their limits, in memory."""

from __future__ import annotations

from enginehouse import LimitStore, Register, hookimpl
from enginehouse_callers.memory_limits import MemoryLimits

__all__ = ["MemoryLimits"]


@hookimpl
def register_limit_stores(register: Register[LimitStore]) -> None:
    register("memory", MemoryLimits)
