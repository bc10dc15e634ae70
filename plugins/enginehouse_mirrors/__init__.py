"""Mirrors: a share of the requests for a model is also sent to another one, and the answers are compared."""

from __future__ import annotations

from enginehouse import Observer, Register, hookimpl
from enginehouse_mirrors.observer import Mirrors


@hookimpl
def register_observers(register: Register[Observer]) -> None:
    """Register what sends and compares copies."""
    register("mirrors", Mirrors)
