"""Guards as interceptors: what the list ``guards`` names sees requests first and answers last."""

from __future__ import annotations

from enginehouse import Register, hookimpl
from enginehouse_guards.adapter import GuardAdapter
from enginehouse_kit.interceptors import Interceptor


@hookimpl
def register_interceptors(register: Register[Interceptor]) -> None:
    """Register the adapter, which is used if ``guards`` names anything."""
    register("guards", GuardAdapter)
