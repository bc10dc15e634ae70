"""The ``sglang`` driver: SGLang's server."""

from __future__ import annotations

from enginehouse import Driver, Register, hookimpl
from enginehouse_sglang.driver import SglangDriver

__all__ = ["SglangDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Register the ``sglang`` driver."""
    register("sglang", SglangDriver)
