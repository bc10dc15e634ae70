"""The ``llamacpp`` driver: llama.cpp's ``llama-server``."""

from __future__ import annotations

from enginehouse import Driver, Register, hookimpl
from enginehouse_llamacpp.driver import LlamaCppDriver

__all__ = ["LlamaCppDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Register the ``llamacpp`` driver."""
    register("llamacpp", LlamaCppDriver)
