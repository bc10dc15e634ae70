"""The ``lmstudio`` driver."""

from __future__ import annotations

from enginehouse import Driver, Register, hookimpl
from enginehouse_lmstudio.driver import LMStudioDriver

__all__ = ["LMStudioDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Register the ``lmstudio`` driver."""
    register("lmstudio", LMStudioDriver)
