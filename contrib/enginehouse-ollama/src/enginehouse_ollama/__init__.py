"""The ``ollama`` driver and the command ``ollama pull``."""

from __future__ import annotations

from enginehouse import Driver, Register, hookimpl
from enginehouse_ollama.driver import OllamaDriver

__all__ = ["OllamaDriver"]


@hookimpl
def register_drivers(register: Register[Driver]) -> None:
    """Register the ``ollama`` driver."""
    register("ollama", OllamaDriver)
